package dirlock

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usersOf returns the effective user of each other process that has a file open.
func usersOf(proc string, f *os.File) []int {
	file, err := f.Stat()
	if err != nil {
		return nil
	}
	processes, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var users []int
	for _, p := range processes {
		if pid, err := strconv.Atoi(p.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		fds := filepath.Join(proc, p.Name(), "fd")
		entries, err := os.ReadDir(fds)
		if err != nil {
			continue
		}
		for _, e := range entries {
			at, err := os.Stat(filepath.Join(fds, e.Name()))
			if err != nil || !os.SameFile(at, file) {
				continue
			}
			if user, ok := userOf(filepath.Join(proc, p.Name(), "status")); ok {
				users = append(users, user)
			}
			break
		}
	}
	return users
}

// userOf returns the effective user of a process.
func userOf(status string) (int, bool) {
	text, err := os.ReadFile(status)
	if err != nil {
		return 0, false
	}
	_, rest, found := strings.Cut(string(text), "\nUid:")
	ids := strings.Fields(rest)
	if !found || len(ids) < 2 {
		return 0, false
	}
	user, err := strconv.Atoi(ids[1])
	return user, err == nil
}

// heldByStrangers reports whether a file is open in processes of other users, and in none of our user: then no monopod holds its lock. Root's
// processes count as ours. Unless a stranger is found, the holder may be a monopod that this process cannot see.
func heldByStrangers(users []int, own int) bool {
	for _, u := range users {
		if u == own || u == 0 {
			return false
		}
	}
	return len(users) > 0
}
