// Package deleted is the note that a shim leaves in the bundle of a container that it has deleted: runtime, mounts and all.
//
// containerd runs the shim's program with the word delete whenever a shim has gone, also after it has deleted a container in
// order. The note has the answer, and package early gives it before the program is even ready to run: of all that starts a
// shim's program, there is nothing that this needs. Thus nothing may be imported here but what the system calls need.
package deleted

import "syscall"

// file is the note's name in a bundle.
const file = "deleted"

// maxAnswer is more than an answer has: three numbers and a time.
const maxAnswer = 255

// Write leaves the note. An answer that is too long is left out; it will be found in another way.
func Write(bundle string, answer []byte) error {
	fd, err := retry(func() (int, error) {
		return syscall.Open(bundle+"/"+file, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	if len(answer) > maxAnswer {
		return nil
	}
	_, err = retry(func() (int, error) { return syscall.Write(fd, append([]byte{byte(len(answer))}, answer...)) })
	return err
}

// Is reports whether there is a note.
func Is(bundle string) bool {
	var st syscall.Stat_t
	return syscall.Stat(bundle+"/"+file, &st) == nil
}

// Read returns the answer of a bundle's note; ok is false when there is none, or it was not written to its end.
func Read(bundle string) (answer []byte, ok bool) {
	text := read(bundle+"/"+file, maxAnswer+2)
	if len(text) < 2 || int(text[0]) != len(text)-1 {
		return nil, false
	}
	return text[1:], true
}

// Answer answers the question that this process was started to answer, and reports whether it could. The process is in the bundle
// of a container, and asked about that one, or one in a bundle beside it.
func Answer() bool {
	id, ok := parse(string(read("/proc/self/cmdline", maxCommand)))
	if !ok {
		return false
	}
	answer, ok := Read("../" + id)
	if !ok {
		return false
	}
	n, err := retry(func() (int, error) { return syscall.Write(1, answer) })
	return err == nil && n == len(answer)
}

// maxCommand is more than the command line of a shim has.
const maxCommand = 8 << 10

// parse reads a command line, with a zero byte after each word. ok says that it asks what became of a container.
func parse(cmdline string) (id string, ok bool) {
	var last, word string
	begin := 0
	for i := range len(cmdline) {
		if cmdline[i] != 0 {
			continue
		}
		last, word = word, cmdline[begin:i]
		begin = i + 1
		if last == "-id" {
			id = word
		}
	}
	for i := range len(id) {
		if id[i] == '/' {
			return "", false
		}
	}
	value := last != "" && last[0] == '-' && last != "-debug" // the last word is an option's
	return id, begin == len(cmdline) && word == "delete" && !value && id != "" && id[0] != '.'
}

// read returns the content of a file that has less than limit bytes; nil when it cannot be read, or has more.
func read(path string, limit int) []byte {
	fd, err := retry(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil
	}
	defer func() { _ = syscall.Close(fd) }()
	text := make([]byte, limit)
	for have := 0; have < limit; {
		n, err := retry(func() (int, error) { return syscall.Read(fd, text[have:]) })
		if err != nil {
			return nil
		}
		if n == 0 {
			return text[:have]
		}
		have += n
	}
	return nil
}

// retry makes a system call until no signal comes in between.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != syscall.EINTR { //nolint:errorlint // package errors is one that is not ready
			return n, err
		}
	}
}
