package progress

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func start(t *testing.T, out *bytes.Buffer, terminal bool, poll func(context.Context, *Reporter)) *Reporter {
	return Start(t.Context(), Config{Out: out, Terminal: terminal, Size: func() (int, int) { return 20, 3 }, After: 2 * time.Second, Every: time.Second, Poll: poll})
}

func TestAShortWaitIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := start(t, &out, false, nil)
		r.Set("pod a", "starting")
		time.Sleep(time.Second)
		r.Stop()
		if out.Len() > 0 {
			t.Errorf("%q", out.String())
		}
	})
}

func TestEachChangeIsAPlainLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		polls := 0
		r := start(t, &out, false, func(_ context.Context, r *Reporter) {
			polls++
			r.Set("image x", "half")
			if polls > 2 {
				r.Keep("image ", nil)
			}
		})
		r.Set("pod a", "starting")
		r.Set("pod b", "starting\x1b[2J")
		time.Sleep(2500 * time.Millisecond)
		r.Set("pod a", "not Ready")
		r.Set("pod b", "")
		r.Set("pod c", "")
		time.Sleep(3 * time.Second)
		r.Stop()
		const want = "pod a: starting\npod b: starting\\x1b[2J\nimage x: half\npod a: not Ready\n"
		if got := out.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestATerminalIsRedrawnAndLeftClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := start(t, &out, true, nil)
		for _, name := range []string{"pod a", "pod b", "pod too many"} {
			r.Set(name, "a text that is too long")
		}
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		const drawn = "pod a: a text that \npod b: a text that \n"
		if got := out.String(); got != drawn {
			t.Errorf("%q, want %q", got, drawn)
		}
		r.Set("pod a", "")
		r.Set("pod b", "")
		time.Sleep(time.Second)
		r.Stop()
		const want = drawn + "\x1b[A\x1b[A\r\x1b[Jpod too many: a tex\n\x1b[A\r\x1b[J"
		if got := out.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestNoReporterShowsNothing(t *testing.T) {
	var r *Reporter
	r.Set("a", "b")
	r.Keep("a", nil)
	r.Stop()
}
