// pack writes the archive of programs that is embedded in monopod-bundle, and its list beside it, unless they are there:
// pack DIRECTORY PROGRAM...
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"monopod/internal/bundle"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pack DIRECTORY PROGRAM...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(dir string, programs []string) error {
	archivePath, listPath := filepath.Join(dir, "bundle.tar.zst"), filepath.Join(dir, "bundle.list")
	if archive, err := os.ReadFile(archivePath); err == nil {
		if text, err := os.ReadFile(listPath); err == nil && bundle.Packed(archive, text, programs...) {
			return nil // to compress them once more would take half a minute
		}
	}
	archive, text, err := bundle.Pack(compress, programs...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(archivePath, archive, 0o644); err != nil {
		return err
	}
	return os.WriteFile(listPath, text, 0o644)
}

// compress uses the zstd program where there is one. It has levels that the Go package has not: an eighth less. A larger window would save
// another twentieth, and take four times the memory to unpack.
func compress(plain []byte) ([]byte, error) {
	program, err := exec.LookPath("zstd")
	if err != nil {
		return bundle.Compress(plain)
	}
	var out bytes.Buffer
	cmd := exec.Command(program, "-q", "-19", "--long=24", "-c")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(plain), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return out.Bytes(), nil
}
