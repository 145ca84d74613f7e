//go:build bundle

package bundle

import _ "embed" // for the archive

// `make bundle` writes both.
var (
	//go:embed bundle.tar.zst
	embedded []byte
	//go:embed bundle.version
	embeddedVersion string
)

func carried() parcel { return parcel{archive: embedded, version: embeddedVersion} }
