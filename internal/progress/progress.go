// Package progress shows on a terminal, or as plain lines, what a command waits for.
//
// It must not know pods or images: callers give it texts. A Reporter has one goroutine, which ends with Stop.
package progress

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"monopod/internal/printer"
)

// Config of a Reporter.
type Config struct {
	Out io.Writer
	// Terminal redraws the lines in place; otherwise each change is a line.
	Terminal bool
	// Size returns the columns and lines of the terminal.
	Size func() (width, height int)
	// After is how long nothing is shown, because most commands end soon, and Every the interval after it.
	After, Every time.Duration
	// Poll, which may be nil, is called before each output, to set what no event reports.
	Poll func(context.Context, *Reporter)
}

// Reporter shows the latest text of each line. It is safe for concurrent use; nil shows nothing.
type Reporter struct {
	cfg  Config
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex // guards all below
	lines []line
	// drawn is the number of lines to redraw.
	drawn int
}

// line is what is known of a name, and what has been shown of it.
type line struct{ name, text, shown string }

// Start returns a Reporter, which must be stopped.
func Start(ctx context.Context, cfg Config) *Reporter {
	r := &Reporter{cfg: cfg, done: make(chan struct{})}
	ctx, r.stop = context.WithCancel(ctx)
	go r.run(ctx)
	return r
}

// Set changes the text of a line; an empty text removes it.
func (r *Reporter) Set(name, text string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.lines, func(l line) bool { return l.name == name })
	switch {
	case text == "" && i >= 0:
		r.lines = slices.Delete(r.lines, i, i+1)
	case text == "":
	case i < 0:
		r.lines = append(r.lines, line{name: name, text: text})
	default:
		r.lines[i].text = text
	}
}

// Keep removes the lines whose names begin with prefix, except these.
func (r *Reporter) Keep(prefix string, names map[string]bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = slices.DeleteFunc(r.lines, func(l line) bool { return strings.HasPrefix(l.name, prefix) && !names[l.name] })
}

// Stop removes what was drawn on the terminal. Nothing is shown afterwards.
func (r *Reporter) Stop() {
	if r == nil {
		return
	}
	r.stop()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(r.erase())
}

func (r *Reporter) run(ctx context.Context) {
	defer close(r.done)
	timer := time.NewTimer(r.cfg.After)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if r.cfg.Poll != nil {
			r.cfg.Poll(ctx, r)
		}
		r.show()
		timer.Reset(r.cfg.Every)
	}
}

func (r *Reporter) show() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.Terminal {
		r.write(r.erase() + r.draw())
		return
	}
	var out strings.Builder
	for i := range r.lines {
		if l := &r.lines[i]; l.text != l.shown {
			l.shown = l.text
			printer.New(&out).Println(printer.OneLine(l.name + ": " + l.text))
		}
	}
	r.write(out.String())
}

// erase returns what removes the drawn lines.
func (r *Reporter) erase() string {
	out := ""
	if r.drawn > 0 {
		out = strings.Repeat("\x1b[A", r.drawn) + "\r\x1b[J"
	}
	r.drawn = 0
	return out
}

// draw returns the lines that fit on the terminal; others could not be redrawn.
func (r *Reporter) draw() string {
	width, height := r.cfg.Size()
	var out strings.Builder
	for _, l := range r.lines[:min(len(r.lines), max(height-1, 0))] {
		text := []rune(printer.Escape(printer.OneLine(l.name + ": " + l.text)))
		printer.New(&out).Println(string(text[:min(len(text), width-1)]))
		r.drawn++
	}
	return out.String()
}

// write ignores errors: what is missing is only progress.
func (r *Reporter) write(text string) {
	if text != "" {
		_, _ = io.WriteString(r.cfg.Out, text)
	}
}
