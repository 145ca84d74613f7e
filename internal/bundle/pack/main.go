// pack writes the archive of programs that is embedded in monopod-bundle, and its version beside it:
// pack DIRECTORY PROGRAM...
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

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
	packed := squeeze(archive.Bytes())
	if err := os.WriteFile(filepath.Join(dir, "bundle.tar.zst"), packed, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bundle.version"), []byte(bundle.Version(packed)), 0o644)
}

// squeeze compresses an archive again with the zstd program, which has levels that the Go package has not: an eighth
// less. Where there is no such program the archive stays as it is.
func squeeze(archive []byte) []byte {
	program, err := exec.LookPath("zstd")
	if err != nil {
		return archive
	}
	z, err := zstd.NewReader(bytes.NewReader(archive))
	if err != nil {
		return archive
	}
	defer z.Close()
	var out bytes.Buffer
	cmd := exec.Command(program, "-q", "-19", "--long=24", "-c")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = z, &out, os.Stderr
	if cmd.Run() != nil || out.Len() >= len(archive) {
		return archive
	}
	return out.Bytes()
}
