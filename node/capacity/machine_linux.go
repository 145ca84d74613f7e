package capacity

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Files of the kernel, below the root that tests replace.
const (
	fileMeminfo = "proc/meminfo"
	filePIDMax  = "proc/sys/kernel/pid_max"
	fileThreads = "proc/sys/kernel/threads-max"
	fileOnline  = "sys/devices/system/cpu/online"
	dirPages    = "sys/kernel/mm/hugepages"
)

// Read returns what the machine has. storage is a directory on the file system that holds what pods write; as long as it
// does not exist, the one it will be made in counts.
func Read(storage string) (Machine, error) { return read("/", storage) }

func read(root, storage string) (Machine, error) {
	m := Machine{}
	var errs [5]error
	m.MilliCPU, errs[0] = processors(root)
	m.Memory, errs[1] = memory(root)
	m.Storage, errs[2] = size(storage)
	m.HugePages, errs[3] = hugePages(root)
	m.PIDs, errs[4] = pids(root)
	if err := errors.Join(errs[:]...); err != nil {
		return Machine{}, fmt.Errorf("capacity of the machine: %w", err)
	}
	return m, nil
}

// processors counts those that are online.
func processors(root string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(root, fileOnline))
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for part := range strings.SplitSeq(strings.TrimSpace(string(b)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseInt(first, 10, 32)
		to, err2 := strconv.ParseInt(last, 10, 32)
		if err := errors.Join(err1, err2); err != nil || to < from {
			return 0, fmt.Errorf("%s: %q is not a set of processors", fileOnline, part)
		}
		n += to - from + 1
	}
	return n * 1000, nil
}

func memory(root string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(root, fileMeminfo))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(rest)), "kB")), 10, 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("%s has no MemTotal", fileMeminfo)
}

// size is that of the file system of dir, or of the nearest directory above it that exists.
func size(dir string) (int64, error) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if err == nil {
			return int64(s.Blocks * uint64(s.Bsize)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return 0, fmt.Errorf("statfs %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}

// hugePages finds those of each size; a kernel may have none.
func hugePages(root string) (map[int64]int64, error) {
	dirs, err := os.ReadDir(filepath.Join(root, dirPages))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[int64]int64{}
	for _, d := range dirs {
		kib, ok := strings.CutPrefix(strings.TrimSuffix(d.Name(), "kB"), "hugepages-")
		size, err := strconv.ParseInt(kib, 10, 64)
		if !ok || err != nil {
			continue
		}
		n, err := number(filepath.Join(root, dirPages, d.Name(), "nr_hugepages"))
		if err != nil {
			return nil, err
		}
		out[size*1024] = n * size * 1024
	}
	return out, nil
}

// pids is the lower of two limits of the kernel.
func pids(root string) (int64, error) {
	ids, err1 := number(filepath.Join(root, filePIDMax))
	threads, err2 := number(filepath.Join(root, fileThreads))
	return min(ids, threads), errors.Join(err1, err2)
}

func number(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}
