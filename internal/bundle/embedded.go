//go:build bundle

package bundle

import _ "embed" // for the archive

// `make bundle` writes both.
var (
	//go:embed bundle.tar.zst
	embeddedArchive []byte
	//go:embed bundle.list
	embeddedList []byte
)

func embedded() (archive, text []byte) { return embeddedArchive, embeddedList }
