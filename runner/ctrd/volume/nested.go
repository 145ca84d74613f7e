package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod/runner/ctrd/payload"
)

// MakeMountpoints makes the places of mounts inside volumes of ConfigMaps, Secrets and fields, which are in the directory files, as a
// kubelet does: the OCI runtime cannot, because these volumes are read-only. A mount of a file gets a file.
func MakeMountpoints(files string, mounts []specs.Mount) error {
	for i := range mounts {
		parent := around(mounts, mounts[i].Destination)
		if parent == nil || filepath.Dir(parent.Source) != files {
			continue
		}
		info, err := os.Stat(mounts[i].Source)
		directory := mounts[i].Type != "bind" || err == nil && info.IsDir()
		if err != nil && !directory {
			return fmt.Errorf("mount at %s: %w", mounts[i].Destination, err)
		}
		if err := payload.Mountpoint(parent.Source, strings.TrimPrefix(mounts[i].Destination, parent.Destination+"/"), directory); err != nil {
			return fmt.Errorf("make %s in volume %q: %w", mounts[i].Destination, filepath.Base(parent.Source), err)
		}
	}
	return nil
}

// around returns the innermost mount that a path is inside of; nil if it is on the root.
func around(mounts []specs.Mount, path string) *specs.Mount {
	var found *specs.Mount
	for i := range mounts {
		m := &mounts[i]
		if strings.HasPrefix(path, m.Destination+"/") && (found == nil || len(m.Destination) > len(found.Destination)) {
			found = m
		}
	}
	return found
}
