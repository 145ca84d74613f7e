package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"monopod/internal/atomicfile"
)

// ExitRecord is what the shim writes about the end of a container's init process.
type ExitRecord struct {
	ExitCode int       `json:"exitCode"`
	ExitedAt time.Time `json:"exitedAt"`
	// OOMKilled reports whether the kernel killed a process of the container for lack of memory.
	OOMKilled bool `json:"oomKilled,omitempty"`
}

// maxRecord is more than a record has.
const maxRecord = 64 << 10

// ReadExitRecord reads a record; a missing file is an error that matches os.ErrNotExist, one that cannot be understood
// one that matches atomicfile.ErrDamaged.
func ReadExitRecord(path string) (*ExitRecord, error) {
	b, err := atomicfile.Read(path, maxRecord)
	if err != nil {
		return nil, err
	}
	var r ExitRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("exit record %s is %w: %w", path, atomicfile.ErrDamaged, err)
	}
	return &r, nil
}

// TempExitRecord is the path of a record while it is written.
func TempExitRecord(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
}

// writeExitRecord replaces path atomically. There is no fsync: the directory is on tmpfs, and after a power
// cut every container has ended anyway.
func writeExitRecord(path string, r ExitRecord) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("exit record %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("exit record: %w", err)
	}
	// A container has one shim: what that leaves when it is killed is known by its name, and removed with the record.
	tmp := TempExitRecord(path)
	err = os.WriteFile(tmp, append(b, '\n'), 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("exit record: %w", err)
	}
	return nil
}

// bundleSpec is what the shim reads of a bundle's OCI spec.
type bundleSpec struct {
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		Namespaces []struct {
			Type string `json:"type"`
			Path string `json:"path"`
		} `json:"namespaces"`
	} `json:"linux"`
}

// readBundle returns the spec of a bundle; an empty one when it has none or cannot be read.
func readBundle(bundle string) bundleSpec {
	f, err := os.Open(filepath.Join(bundle, "config.json"))
	if err != nil {
		return bundleSpec{}
	}
	defer func() { _ = f.Close() }()
	var spec bundleSpec
	if err := json.NewDecoder(f).Decode(&spec); err != nil {
		return bundleSpec{}
	}
	return spec
}

func (s bundleSpec) exitFile() string { return s.Annotations[AnnotationExitFile] }

// sharesPIDs reports whether the end of the init process does not end the others: it has no PID namespace of its own.
func (s bundleSpec) sharesPIDs() bool {
	for _, ns := range s.Linux.Namespaces {
		if ns.Type == "pid" && ns.Path == "" {
			return false
		}
	}
	return len(s.Linux.Namespaces) > 0
}
