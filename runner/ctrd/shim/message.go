package shim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxMessage is the maximum length of a termination message.
const maxMessage = 4096

// keepMessage copies the end of a termination message from memory to disk, unless the message is empty or missing. It creates the directory
// of the copy, but not the parent of that: if the parent is missing, the pod has been removed.
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
