package local

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Limits of passwd and group files. The lengths of lines are those of moby/sys/user, which containerd uses.
const (
	maxUserFile   = 4 << 20
	maxPasswdLine = 64 << 10
	maxGroupLine  = 1 << 20
	// maxGroups is NGROUPS_MAX of Linux.
	maxGroups = 1 << 16
)

var errUserFileTooLarge = fmt.Errorf("larger than %d MiB", maxUserFile>>20)

// opener opens /etc/passwd or /etc/group of an image; a missing file is empty.
type opener func(name string) (io.ReadCloser, error)

// scan calls do with each line, without spaces around it, until it returns false. It keeps a single line, however many there are.
func (open opener) scan(name string, maxLine int, do func(line []byte) bool) error {
	f, err := open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	rest := &io.LimitedReader{R: f, N: maxUserFile + 1}
	s := bufio.NewScanner(rest)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if rest.N == 0 { // this line may be cut
			return fmt.Errorf("%s: %w", name, errUserFileTooLarge)
		}
		if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 && !do(line) {
			return nil
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%s: a line is longer than %d KiB", name, maxLine>>10)
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// fields cuts the first fields of a line; missing ones are empty.
func fields(line []byte, into ...*[]byte) {
	for _, f := range into {
		*f, line, _ = bytes.Cut(line, []byte(":"))
	}
}

// number is 0 for anything but a number, as for moby/sys/user.
func number(b []byte) int64 {
	n, _ := strconv.Atoi(string(b))
	return int64(n)
}

// passwdEntry is the part of a line of /etc/passwd that is used.
type passwdEntry struct {
	name     string
	uid, gid int64
}

// findUser finds a user by name or uid. A uid without an entry has group 0 and no name.
func findUser(open opener, name string) (passwdEntry, error) {
	n, err := strconv.ParseInt(name, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return passwdEntry{}, fmt.Errorf("uid %s is out of range", name)
	}
	byName, found := err != nil, false
	u := passwdEntry{uid: n}
	err = open.scan("/etc/passwd", maxPasswdLine, func(line []byte) bool {
		var user, password, uid, gid []byte
		fields(line, &user, &password, &uid, &gid)
		if found = byName && string(user) == name || !byName && number(uid) == n; found {
			u = passwdEntry{name: string(user), uid: number(uid), gid: number(gid)}
		}
		return !found
	})
	if err == nil && byName && !found {
		err = fmt.Errorf("the image's /etc/passwd has no user %q", name)
	}
	return u, err
}

// wantedGroups are the groups to look for.
type wantedGroups struct {
	// user is the name that supplementary groups list. A uid without an entry in /etc/passwd has none.
	user string
	// primary is the name of the primary group, if its number is not known.
	primary *string
}

// foundGroups are the ids of groups.
type foundGroups struct {
	supplementary []uint32
	primary       int64
}

// findGroups reads /etc/group if anything in it matters.
func findGroups(open opener, want wantedGroups) (foundGroups, error) {
	var g foundGroups
	if want.user == "" && want.primary == nil {
		return g, nil
	}
	found := want.primary == nil
	err := open.scan("/etc/group", maxGroupLine, func(line []byte) bool {
		if line[0] == '#' {
			return true
		}
		var name, password, gid, members []byte
		fields(line, &name, &password, &gid, &members)
		if !found && string(name) == *want.primary {
			g.primary, found = number(gid), true
		}
		// The group of the same name is the primary one.
		if string(name) != want.user && lists(members, want.user) {
			g.supplementary = append(g.supplementary, uint32(number(gid)))
		}
		return len(g.supplementary) <= maxGroups
	})
	switch {
	case err != nil:
		return g, err
	case len(g.supplementary) > maxGroups:
		return g, fmt.Errorf("the image's /etc/group lists user %q in more than %d groups", want.user, maxGroups)
	case !found:
		return g, fmt.Errorf("the image's /etc/group has no group %q", *want.primary)
	}
	return g, nil
}

// lists reports whether a comma-separated list of users contains one.
func lists(members []byte, user string) bool {
	members, _, _ = bytes.Cut(members, []byte(":"))
	for m := range bytes.SplitSeq(members, []byte(",")) {
		if string(m) == user && user != "" {
			return true
		}
	}
	return false
}
