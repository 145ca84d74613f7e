// pack writes the archive of programs that is embedded in monopod-bundle, and its version beside it:
// pack DIRECTORY PROGRAM...
package main

import (
	"bytes"
	"fmt"
	"os"
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
	var archive bytes.Buffer
	if err := bundle.Pack(&archive, programs...); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "bundle.tar.zst"), archive.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bundle.version"), []byte(bundle.Version(archive.Bytes())), 0o644)
}
