"""`python -m waypost.worker file.py`"""

import sys

from waypost.worker.running import main

sys.exit(main(sys.argv[1:]))
