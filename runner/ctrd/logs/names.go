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
	// rotatedFormat is the suffix of rotated files, in UTC, so that names sort by time.
	rotatedFormat = "20060102-150405"
	gzSuffix      = ".gz"
	// tmpSuffix is the suffix of a file that is being compressed. After a kill, it is a leftover.
	tmpSuffix = ".tmp"
)

// rotated is a rotated log file: <n>.log.<stamp>, optionally with .gz.
type rotated struct {
	// stamp orders rotated files; it is the time of the rotation unless the clock was set back.
	stamp string
	// plain and gz are paths. One is empty, except briefly while gz replaces plain.
	plain, gz string
}

// family are the files that belong to the log file at path.
type family struct {
	// old are the rotated files, oldest first.
	old []rotated
	// tmp are leftovers of interrupted compression.
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

// familyOf selects from the names in the directory of a log file those that belong to it.
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

// newest returns the stamp of the newest rotated file; empty if there is none.
func (f family) newest() string {
	if len(f.old) == 0 {
		return ""
	}
	return f.old[len(f.old)-1].stamp
}

// nextStamp returns the stamp for a rotation. If two happen in one second, or the clock was set back, it is one second after the last
// stamp, to keep the order.
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

// NumberOf returns the instance number of a log file, rotated or not; -1 for other files.
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
