package program

import (
	"context"
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
	return progress.Start(ctx, progress.Config{Out: p.RawErr(), Terminal: terminal, Size: p.errorSize, After: p.ProgressAfter, Every: min(time.Second, p.ProgressAfter), Poll: poll})
}

// errorSize returns the columns and lines of the terminal of standard error.
func (p *Program) errorSize() (width, height int) {
	if f, ok := p.Stderr.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}
