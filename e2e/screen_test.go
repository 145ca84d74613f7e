//go:build e2e

package e2e

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// escape matches a complete escape sequence of a terminal at the start of its output.
var escape = regexp.MustCompile(`^\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()*+].|[^\[\]()*+])`)

// screen emulates as much of a terminal as full-screen programs need: text, moves of the cursor, and erasing. All characters are one
// column wide.
type screen struct {
	mu          sync.Mutex
	cells       [][]rune
	row, column int
	partial     []byte // the start of a sequence or of a character
}

func newScreen(rows, columns int) *screen {
	s := &screen{cells: make([][]rune, rows)}
	for i := range s.cells {
		s.cells[i] = make([]rune, columns)
	}
	s.erase(0, rows*columns)
	return s
}

// String returns the lines of the screen, without trailing blanks and blank lines.
func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, line := range s.cells {
		b.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// Write shows output of the program.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := append(s.partial, b...)
	for len(rest) > 0 {
		if rest[0] == '\x1b' {
			m := escape.FindSubmatch(rest)
			if m == nil {
				break
			}
			if len(m[2]) > 0 {
				s.control(m[2][0], string(m[1]))
			}
			rest = rest[len(m[0]):]
			continue
		}
		if !utf8.FullRune(rest) {
			break
		}
		r, n := utf8.DecodeRune(rest)
		s.put(r)
		rest = rest[n:]
	}
	s.partial = bytes.Clone(rest)
	return len(b), nil
}

// put shows a character at the cursor.
func (s *screen) put(r rune) {
	switch {
	case r == '\r':
		s.column = 0
	case r == '\n':
		s.feed()
	case r == '\b':
		s.column = max(s.column-1, 0)
	case r < ' ':
	default:
		if s.column == len(s.cells[0]) {
			s.column = 0
			s.feed()
		}
		s.cells[s.row][s.column] = r
		s.column++
	}
}

// feed moves the cursor down one line, and scrolls at the bottom.
func (s *screen) feed() {
	if s.row++; s.row < len(s.cells) {
		return
	}
	s.row--
	first := s.cells[0]
	copy(s.cells, s.cells[1:])
	s.cells[s.row] = first
	s.erase(s.row*len(first), (s.row+1)*len(first))
}

// erase blanks the cells from one position until before another, counted from the upper left.
func (s *screen) erase(from, to int) {
	for i := from; i < to; i++ {
		s.cells[i/len(s.cells[0])][i%len(s.cells[0])] = ' '
	}
}

// erasePart erases what lies after a position (0), before it (1), or both (2).
func (s *screen) erasePart(part, start, at, end int) {
	switch part {
	case 0:
		s.erase(at, end)
	case 1:
		s.erase(start, at+1)
	default:
		s.erase(start, end)
	}
}

// control executes a control sequence by its final byte; those for colors and modes do nothing.
func (s *screen) control(final byte, params string) {
	first, second, _ := strings.Cut(params, ";")
	n, _ := strconv.Atoi(first) // 0 if missing
	m, _ := strconv.Atoi(second)
	rows, columns := len(s.cells), len(s.cells[0])
	line := s.row * columns
	at := line + min(s.column, columns-1)
	switch final {
	case 'H', 'f':
		s.row, s.column = n-1, m-1
	case 'A':
		s.row -= max(n, 1)
	case 'B':
		s.row += max(n, 1)
	case 'C':
		s.column += max(n, 1)
	case 'D':
		s.column -= max(n, 1)
	case 'J':
		s.erasePart(n, 0, at, rows*columns)
	case 'K':
		s.erasePart(n, line, at, line+columns)
	default:
		return
	}
	s.row, s.column = min(max(s.row, 0), rows-1), min(max(s.column, 0), columns-1)
}

// TestClientScreen: output moves the cursor, erases and scrolls, also if a sequence arrives in pieces.
func TestClientScreen(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ output, want string }{
		"lines":                {"one\r\ntwo", "one\ntwo"},
		"colors and titles":    {"\x1b[1;31mred\x1b[0m\x1b]0;title\x07\x1b(B!", "red!"},
		"a move":               {"\x1b[2;3Hx\x1b[Hy", "y\n  x"},
		"relative moves":       {"abc\x1b[2DB\x1b[Bd\x1b[Ae\x1b[Cf", "aBce f\n  d"},
		"the screen is erased": {"one\r\ntwo\x1b[2J\x1b[Hnew", "new"},
		"a line is erased":     {"abcdef\x1b[1;3H\x1b[K\r\nabc\x1b[2D\x1b[1K", "ab\n  c"},
		"it scrolls":           {"1\r\n2\r\n3\r\n4", "2\n3\n4"},
		"it wraps":             {"0123456789", "01234567\n89"},
		"characters":           {"│é", "│é"},
	} {
		whole, pieces := newScreen(3, 8), newScreen(3, 8)
		_, _ = whole.Write([]byte(tt.output))
		for i := range len(tt.output) {
			_, _ = pieces.Write([]byte{tt.output[i]})
		}
		if whole.String() != tt.want || pieces.String() != tt.want {
			t.Errorf("%s: %q, in pieces %q, want %q", name, whole, pieces, tt.want)
		}
	}
}
