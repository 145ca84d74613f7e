package logs

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// rotatedFormat is the end of a rotated file's name, in UTC, so that names sort by time.
	rotatedFormat = "20060102-150405"
	gzSuffix      = ".gz"
	// tmpSuffix is that of a file that is being compressed. Nobody has it after a kill.
	tmpSuffix = ".tmp"
)

// rotated is what a log file of a container was in an earlier time: <n>.log.<stamp>, also as .gz.
type rotated struct {
	// stamp tells which is the newer of two; it is the time of the rotation unless the clock jumped.
	stamp string
	// plain and gz are the paths; one is empty but in the instant after the one was made of the other.
	plain, gz string
}

// family is what is there beside the log file at path.
type family struct {
	// old are the rotated files, the oldest first.
	old []rotated
	// tmp are what compressing has left behind.
	tmp []string
}

// listFamily reads the directory of a log file.
func listFamily(path string) (family, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return family{}, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return familyOf(path, names), nil
}

// familyOf picks out of the names in the directory of a log file those that belong to it.
func familyOf(path string, names []string) family {
	var f family
	byStamp := map[string]*rotated{}
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, filepath.Base(path)+".")
		if !ok {
			continue
		}
		at := filepath.Join(filepath.Dir(path), name)
		if stamp, ok := strings.CutSuffix(rest, tmpSuffix); ok && isStamp(stamp) {
			f.tmp = append(f.tmp, at)
			continue
		}
		stamp, gz := strings.CutSuffix(rest, gzSuffix)
		if !isStamp(stamp) {
			continue
		}
		r := byStamp[stamp]
		if r == nil {
			r = &rotated{stamp: stamp}
			byStamp[stamp] = r
		}
		if gz {
			r.gz = at
		} else {
			r.plain = at
		}
	}
	for _, r := range byStamp {
		f.old = append(f.old, *r)
	}
	slices.SortFunc(f.old, func(a, b rotated) int { return cmp.Compare(a.stamp, b.stamp) })
	return f
}

func isStamp(s string) bool {
	_, err := time.Parse(rotatedFormat, s)
	return err == nil
}

// newest is the stamp of the newest rotated file, empty when there is none.
func (f family) newest() string {
	if len(f.old) == 0 {
		return ""
	}
	return f.old[len(f.old)-1].stamp
}

// nextStamp names what is rotated now. Two in a second and a clock that was set back must not mix up the order:
// the name is then the last one's and a second.
func nextStamp(now time.Time, last string) string {
	stamp := now.UTC().Format(rotatedFormat)
	if stamp > last && isStamp(stamp) {
		return stamp
	}
	at, err := time.Parse(rotatedFormat, last)
	if err != nil {
		return stamp
	}
	return at.Add(time.Second).Format(rotatedFormat)
}

// NumberOf is the number of the instance that a file is the log of, or a rotated part of it; -1 for other files.
func NumberOf(name string) int {
	base, rest, ok := strings.Cut(name, ".log")
	if !ok || rest != "" && (rest[0] != '.' || !isStamp(strings.TrimSuffix(rest[1:], gzSuffix))) || base == "" || len(base) > 9 {
		return -1
	}
	n := 0
	for _, c := range base {
		if c < '0' || c > '9' {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	return n
}
