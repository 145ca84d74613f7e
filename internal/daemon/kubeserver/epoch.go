package kubeserver

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"monopod/internal/atomicfile"
)

// epochFile holds the epoch of the latest start that served the API.
const epochFile = "epoch"

// raiseEpoch returns a number that is larger than that of every earlier start, and stores it before it returns. It is at least the minutes
// since 2025, so it increases even if the file was lost or damaged, unless the clock was also set back.
func raiseEpoch(dir string, now time.Time, log *slog.Logger) (uint32, error) {
	if err := atomicfile.MkdirAll(dir); err != nil {
		return 0, fmt.Errorf("directory of the Kubernetes API: %w", err)
	}
	path := filepath.Join(dir, epochFile)
	epoch := uint32(1)
	switch last, err := readEpoch(path); {
	case err == nil:
		epoch = last + 1
	case errors.Is(err, atomicfile.ErrDamaged):
		log.Warn("epoch file is damaged; replaced it (restart watching clients if the clock is wrong)", "err", err)
		if err := os.RemoveAll(path); err != nil {
			return 0, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("epoch of the Kubernetes API: %w", err)
	}
	if minutes := now.Sub(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Minute; minutes > time.Duration(epoch) && minutes < 1<<30 {
		epoch = uint32(minutes)
	}
	if err := atomicfile.Write(path, strconv.AppendUint(nil, uint64(epoch), 10), 0o600); err != nil {
		return 0, fmt.Errorf("epoch of the Kubernetes API: %w", err)
	}
	return epoch, nil
}

func readEpoch(path string) (uint32, error) {
	data, err := atomicfile.Read(path, 64)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%s is %w: %w", path, atomicfile.ErrDamaged, err)
	}
	return uint32(n), nil
}
