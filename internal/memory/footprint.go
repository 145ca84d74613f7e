package memory

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram drops the pages of the program's code and constants from this process: startup touches most of them, later work only few.
// They stay in the page cache of the kernel and are mapped again on use, 64 KiB at a time: about 250 page faults after a start, of 1 to 2
// µs each. It returns how many bytes were mapped.
func forgetProgram() (int64, error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	parts, err := unchanged(f, exe)
	if err != nil {
		return 0, err
	}
	var mapped int64
	for _, p := range parts {
		if _, _, e := unix.Syscall(unix.SYS_MADVISE, p.start, p.end-p.start, unix.MADV_DONTNEED); e != 0 {
			err = errors.Join(err, fmt.Errorf("madvise %x-%x: %w", p.start, p.end, e))
			continue
		}
		mapped += p.resident
	}
	return mapped, err
}

// region is a memory range of a process.
type region struct {
	start, end uintptr
	// resident is in bytes.
	resident int64
}

// unchanged returns the mapped regions of a file that are identical to its content, read from smaps of proc_pid_smaps(5): regions that are
// not writable and have never been written to. Dropping others would lose the changes of linkers (relocations) and debuggers (breakpoints).
func unchanged(smaps io.Reader, file string) ([]region, error) {
	var (
		found []region
		at    *region
	)
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasSuffix(name, ":") { // start-end perms offset device inode path
			at = nil
			start, end, _ := strings.Cut(name, "-")
			from, err := strconv.ParseUint(start, 16, 64)
			to, err2 := strconv.ParseUint(end, 16, 64)
			if err = cmp.Or(err, err2); err != nil {
				return nil, fmt.Errorf("smaps: %w", err)
			}
			if perms := rest[:min(4, len(rest))]; strings.HasSuffix(rest, " "+file) && (perms == "r-xp" || perms == "r--p") {
				found = append(found, region{start: uintptr(from), end: uintptr(to)})
				at = &found[len(found)-1]
			}
			continue
		}
		if at == nil {
			continue
		}
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		switch name {
		case "Rss:":
			at.resident = kib << 10
		case "Anonymous:": // dirty pages are fine: the file itself was just written
			if kib != 0 {
				found, at = found[:len(found)-1], nil
			}
		}
	}
	return found, lines.Err()
}
