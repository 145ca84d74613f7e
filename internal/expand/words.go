package expand

import "fmt"

// Limits of execve(2) on Linux, in bytes: with more a process cannot be started (E2BIG). See execve(2), "Limits on size of
// arguments and environment".
const (
	// MaxWord is the longest argument, and the longest variable as NAME=value: MAX_ARG_STRLEN of include/uapi/linux/binfmts.h
	// is 32 pages, which are of 4 KiB, with the NUL at the end.
	MaxWord = 32*4096 - 1
	// MaxWords is how large all arguments and variables are together, each with its NUL and its pointer: a quarter of the
	// stack's usual limit of 8 MiB (bprm_stack_limits in fs/exec.c).
	MaxWords = 2 << 20
	// MaxPath is the longest path: PATH_MAX of include/uapi/linux/limits.h without the NUL.
	MaxPath = 4095
	// wordCost is what a word takes besides its bytes.
	wordCost = 1 + 8
)

// Words is the room that the arguments and variables of one process have. The zero value is all of it.
type Words struct{ used int }

// WordsError reports that a process would have too many arguments and variables, or one that is too long.
type WordsError struct{ msg string }

// Error implements error.
func (e *WordsError) Error() string { return e.msg }

// Add takes a word of n bytes in.
func (w *Words) Add(n int) error {
	if n > MaxWord {
		return &WordsError{fmt.Sprintf("it has more than %d bytes after expansion, the limit of Linux for one argument or variable", MaxWord)}
	}
	if w.used += n + wordCost; w.used > MaxWords {
		return &WordsError{fmt.Sprintf("arguments and variables together have more than %d bytes, the limit for starting a process", MaxWords)}
	}
	return nil
}

// Remove gives a word of n bytes back.
func (w *Words) Remove(n int) { w.used -= n + wordCost }

// Expand is Word for the words of a process: it takes the result in before it makes it.
func (w *Words) Expand(s string, vars map[string]string) (string, error) {
	if err := w.Add(Length(s, MaxWord, Lengths(vars))); err != nil {
		return "", err
	}
	return Word(s, vars), nil
}
