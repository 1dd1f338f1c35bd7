"""`python -m waypost`"""

from waypost.cli import main

raise SystemExit(main())
