package program

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"monopod/internal/progress"
)

// Progress shows on standard error what a command waits for, until it is stopped: one line for each pod and pull on a terminal, plain lines
// otherwise. poll, which may be nil, is called before each output. It returns nil, which shows nothing, if quiet is set.
func (p *Program) Progress(ctx context.Context, quiet bool, poll func(context.Context, *progress.Reporter)) *progress.Reporter {
	if quiet || p.ProgressAfter == 0 {
		return nil
	}
	terminal := IsTerminal(p.Stderr)
	size := func() (int, int) { return Screen(p.Stderr) }
	return progress.Start(ctx, progress.Config{Out: p.RawErr(), Terminal: terminal, Size: size, After: p.ProgressAfter, Every: min(time.Second, p.ProgressAfter), Poll: poll})
}

// Screen returns the columns and lines of a terminal, 80 and 24 if it does not report them or w is no terminal.
func Screen(w io.Writer) (width, height int) {
	if f, ok := w.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}
