package secure

import (
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"

	"monopod/internal/regular"
)

// maxAccessFile is more than a file of authorities or tokens needs.
const maxAccessFile = 4 << 20

// watched is the content of a file, which is re-read when it changes. While the file is invalid, the previous content applies; a deleted file
// has none, because that is how its credentials are revoked.
type watched[T any] struct {
	file  string
	parse func([]byte) (T, error)
	log   *slog.Logger

	mu    sync.Mutex
	seen  stamp
	value T
	wrong error
}

// get returns the latest valid content.
func (f *watched[T]) get() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := stampOf(f.file)
	if now == f.seen && now != "" {
		return f.value, f.wrong
	}
	data, err := regular.ReadFile(f.file, maxAccessFile)
	var value T
	if err == nil {
		value, err = f.parse(data)
	}
	f.seen = now
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		f.value = value
	}
	if err != nil {
		if f.wrong == nil || f.wrong.Error() != err.Error() {
			f.log.Error("file cannot be used", "file", f.file, "err", err)
		}
		f.wrong = err
		return f.value, err
	}
	f.value, f.wrong = value, nil
	return value, nil
}
