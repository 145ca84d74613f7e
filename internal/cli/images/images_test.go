package images

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"monopod/internal/program"
	"monopod/node/localapi"
)

func TestPullLinesAreFewAndBarsChangeInPlace(t *testing.T) {
	var out, errs strings.Builder
	p := &program.Program{Stdout: &out, Stderr: &errs}
	lines := &pullLines{Program: p, said: map[string]time.Time{}}
	now := time.Now()
	e := localapi.PullEvent{Image: "a", State: localapi.PullPulling}
	for i := range 60 {
		lines.show(e, now.Add(time.Duration(i)*250*time.Millisecond))
		e.Done, e.Total = int64(i)*1000, 60_000
	}
	lines.show(localapi.PullEvent{Image: "a", State: localapi.PullPulled, Digest: "sha256:1", Total: 60_000, Seconds: 15}, now)
	if want := "a: pulling\na: 19.0 kB of 60.0 kB (31%)\na: 39.0 kB of 60.0 kB (65%)\na: pulled sha256:1 60.0 kB in 15s\n"; out.String() != want {
		t.Errorf("lines:\n%s", out.String())
	}
}

// screen is a terminal that interprets the control sequences of bars.
type screen struct {
	t             *testing.T
	width, height int
	// lines are all lines ever written; only the last height of them can be changed.
	lines []string
	row   int
}

func (s *screen) Write(b []byte) (int, error) {
	text := string(b)
	for text != "" {
		var up int
		switch {
		case strings.HasPrefix(text, "\x1b[J"):
			s.lines = append(s.lines[:s.row:s.row], "")
			text = text[len("\x1b[J"):]
			continue
		case strings.HasPrefix(text, "\x1b["):
			if _, err := fmt.Sscanf(text, "\x1b[%dA", &up); err != nil {
				s.t.Fatalf("%q is not known", text)
			}
			_, text, _ = strings.Cut(text, "A")
			s.row = max(s.row-up, len(s.lines)-s.height, 0)
			continue
		}
		c := text[0]
		text = text[1:]
		if c == '\r' {
			continue // it is always at the beginning of a line then
		}
		if c == '\n' || len(s.lines[s.row]) == s.width {
			s.row++
			if s.row == len(s.lines) {
				s.lines = append(s.lines, "")
			}
		}
		if c != '\n' {
			s.lines[s.row] += string(c)
		}
	}
	return len(b), nil
}

func TestBarsFitIntoTheTerminal(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	const long = "registry.example.com:5000/a/team/with/a/name/application:v1.2.3"
	for _, size := range [][2]int{{120, 24}, {80, 24}, {60, 5}, {20, 3}, {200, 1}} {
		s := &screen{t: t, width: size[0], height: size[1], lines: []string{""}}
		b := &pullBars{Program: &program.Program{Stdout: s}, size: func() (int, int) { return s.width, s.height }}
		images := []string{"a", long, "b", "c", "d"}
		for done := range int64(11) {
			for _, name := range images {
				b.show(localapi.PullEvent{Image: name, State: localapi.PullPulling, Done: done * 1e6, Total: 1e7})
			}
		}
		shown := min(len(images), s.height-1)
		if n := len(s.lines) - 1; n != shown {
			t.Fatalf("%v: %d lines, want %d:\n%s", size, n, shown, strings.Join(s.lines, "\n"))
		}
		if line := s.lines[min(1, shown)]; shown > 1 && s.width >= 60 && (!strings.HasPrefix(line, "[==========") || !strings.HasSuffix(line, "application:v1.2.3 10.0 MB of 10.0 MB (100%)")) {
			t.Errorf("%v: %q", size, line)
		}
		b.show(localapi.PullEvent{Image: long, State: localapi.PullPulled, Digest: digest, Total: 1e7, Seconds: 1})
		b.show(localapi.PullEvent{Image: "a", State: localapi.PullFailed, Reason: "ErrImagePull", Error: "no"})
		for _, name := range []string{"b", "c", "d"} {
			b.show(localapi.PullEvent{Image: name, State: localapi.PullPulled, Digest: "sha256:1", Seconds: 1})
		}
		want := "done   " + long + " " + digest + " 10.0 MB in 1sfailed a ErrImagePull: nodone   b sha256:1 in 1sdone   c sha256:1 in 1sdone   d sha256:1 in 1s"
		if got := strings.Join(s.lines, ""); got != want {
			t.Errorf("%v: it ends with\n%s", size, strings.Join(s.lines, "\n"))
		}
	}
}
