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

// forgetProgram takes the pages of the program's code and constants out of this process: a start touches most of them, what comes after touches
// few. They stay in the kernel's page cache, and come back from there, 64 KiB at a time, when they are used: 250 faults in all after a
// start, of 1 to 2 µs each. Returned is how much was mapped, in bytes.
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

// region is part of the memory of a process.
type region struct {
	start, end uintptr
	// resident is in bytes.
	resident int64
}

// unchanged reads the parts of a file that are mapped and are just what the file says, from a smaps of proc_pid_smaps(5): they cannot be written to, and
// nobody has (what a linker relocates, and breakpoints of a debugger, would be lost).
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
