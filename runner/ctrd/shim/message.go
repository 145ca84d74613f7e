package shim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxMessage is what is read of a termination message, at most.
const maxMessage = 4096

// keepMessage copies the end of a termination message from memory to the disk. An empty one, and one that is gone, has no
// copy. The directory of the copy is made, the one that it is in is not: without it the pod is gone.
func keepMessage(from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer func() { _ = in.Close() }()
	st, err := in.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
		return err
	}
	text := make([]byte, min(st.Size(), maxMessage))
	n, err := in.ReadAt(text, st.Size()-int64(len(text)))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := os.Mkdir(filepath.Dir(to), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return ignoreNotExist(err)
	}
	return os.WriteFile(to, text[:n], 0o600)
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
