"""Pack the files that are named into the archive that is named first."""

import sys
import zipfile

with zipfile.ZipFile(sys.argv[1], "w") as archive:
    for name in sys.argv[2:]:
        archive.write(name)
