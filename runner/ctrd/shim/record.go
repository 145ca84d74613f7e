package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"monopod/internal/atomicfile"
)

// ExitRecord is written when the init process of a container exits.
type ExitRecord struct {
	ExitCode int       `json:"exitCode"`
	ExitedAt time.Time `json:"exitedAt"`
	// OOMKilled reports whether the OOM killer killed a process of the container.
	OOMKilled bool `json:"oomKilled,omitempty"`
}

// maxRecord is more than a record needs.
const maxRecord = 64 << 10

// ReadExitRecord reads a record. If the file is missing, the error matches os.ErrNotExist; if it is invalid, atomicfile.ErrDamaged.
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

// TempExitRecord returns the path of an incomplete record.
func TempExitRecord(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
}

// writeExitRecord replaces path atomically. It does not sync: the directory is on a tmpfs, and after a power cut every container has exited
// anyway.
func writeExitRecord(path string, r ExitRecord) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("exit record %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("exit record: %w", err)
	}
	// A container has one shim, so the temporary file has a fixed name. A leftover of a killed shim is removed with the record.
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

// bundleSpec is the part of a bundle's OCI spec that the shim uses.
type bundleSpec struct {
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		Namespaces []struct {
			Type string `json:"type"`
			Path string `json:"path"`
		} `json:"namespaces"`
	} `json:"linux"`
}

// readBundle returns the spec of a bundle; it is empty if it is missing or invalid.
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

// sharesPIDs reports whether the init process has no PID namespace of its own, so that other processes survive its exit.
func (s bundleSpec) sharesPIDs() bool {
	for _, ns := range s.Linux.Namespaces {
		if ns.Type == "pid" && ns.Path == "" {
			return false
		}
	}
	return len(s.Linux.Namespaces) > 0
}
