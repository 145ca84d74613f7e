package probe

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// epoch returns when the containers of these tests start.
func epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func at(seconds float64) time.Time {
	return epoch().Add(time.Duration(seconds * float64(time.Second)))
}

func config(kind Kind) Config {
	return Config{Kind: kind, Period: 10 * time.Second, Timeout: time.Second, SuccessThreshold: 1, FailureThreshold: 3}
}

func TestFirst(t *testing.T) {
	delayed := config(Readiness)
	delayed.InitialDelay = 7 * time.Second
	tests := []struct {
		name   string
		config Config
		now    time.Time
		before Result
		spread float64
		result Result
		due    time.Time
	}{
		{"a readiness probe begins as failed", config(Readiness), at(0), Unknown, 0, Failure, at(0)},
		{"a liveness probe begins as succeeded", config(Liveness), at(0), Unknown, 0, Success, at(0)},
		{"a startup probe begins as unknown", config(Startup), at(0), Unknown, 0, Unknown, at(0)},
		{"the delay counts from the start of the container", delayed, at(2), Unknown, 0.5, Failure, at(7)},
		{"a delay that is over is not repeated", delayed, at(9), Unknown, 0, Failure, at(9)},
		{"attempts on what was running are spread over a period", config(Liveness), at(100), Unknown, 0.5, Success, at(105)},
		{"what was ready stays ready", config(Readiness), at(100), Success, 0.25, Success, at(102.5)},
		{"a startup probe that has succeeded stops", config(Startup), at(100), Success, 0.5, Success, time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.config.First(epoch(), tt.now, tt.before, tt.spread)
			if s.Result != tt.result || !s.Due.Equal(tt.due) {
				t.Errorf("%s, due %s; want %s, %s", s.Result, s.Due, tt.result, tt.due)
			}
		})
	}
}

func TestThresholds(t *testing.T) {
	flapping := config(Readiness)
	flapping.SuccessThreshold = 2
	tests := []struct {
		name     string
		config   Config
		outcomes string // s: success, w: warning, f: failure, e: error
		results  string // S, F or U after each
	}{
		{"three failures in a row count", config(Liveness), "sffsfff", "SSSSSSF"},
		{"one success counts at once", config(Readiness), "ffsff", "FFSSS"},
		{"two successes are needed where two are wanted", flapping, "sfsssffsf", "FFFSSSSSS"},
		{"a warning is a success", config(Readiness), "w", "S"},
		{"errors count neither way", config(Liveness), "feeeeff", "SSSSSSF"},
		{"an error does not interrupt a row", flapping, "ses", "FFS"},
		{"a startup probe may fail before it succeeds", config(Startup), "ffs", "UUS"},
		{"a startup probe that fails too often has failed", config(Startup), "fff", "UUF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.config.First(epoch(), epoch(), Unknown, 0)
			for i, c := range tt.outcomes {
				o := Outcome{Result: map[rune]Result{'s': Success, 'w': Warning, 'f': Failure, 'e': Errored}[c]}
				s = tt.config.Next(s, at(float64(10*i)), at(float64(10*i)+0.1), o)
				if want := map[byte]Result{'S': Success, 'F': Failure, 'U': Unknown}[tt.results[i]]; s.Result != want {
					t.Fatalf("after %q it is %s, want %s", tt.outcomes[:i+1], s.Result, want)
				}
			}
		})
	}
}

func TestNextAttemptIsOnePeriodAfterLast(t *testing.T) {
	c := config(Readiness)
	s := c.Next(c.First(epoch(), epoch(), Unknown, 0), at(3), at(3.5), Outcome{Result: Success})
	if !s.Due.Equal(at(13)) {
		t.Errorf("due %s, want %s", s.Due, at(13))
	}
	s = c.Next(s, at(13), at(33), Outcome{Result: Success})
	if !s.Due.Equal(at(33)) {
		t.Errorf("after a slow attempt due %s, want at once", s.Due)
	}
}

// TestStateMatchesThresholdDefinition compares the state with the definition of thresholds.
func TestStateMatchesThresholdDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := config(Readiness)
		c.SuccessThreshold = rapid.IntRange(1, 4).Draw(t, "success threshold")
		c.FailureThreshold = rapid.IntRange(1, 4).Draw(t, "failure threshold")
		s := c.First(epoch(), epoch(), Unknown, 0)
		want, row, last := Failure, 0, Unknown
		for i, r := range rapid.SliceOf(rapid.SampledFrom([]Result{Success, Failure, Errored})).Draw(t, "outcomes") {
			s = c.Next(s, at(float64(i)), at(float64(i)), Outcome{Result: r})
			if r == Errored {
				continue
			}
			if r != last {
				last, row = r, 0
			}
			row++
			if r == Success && row >= c.SuccessThreshold || r == Failure && row >= c.FailureThreshold {
				want = r
			}
			if s.Result != want || s.Failing() != (r == Failure) {
				t.Fatalf("after %d outcomes it is %s, want %s", i+1, s.Result, want)
			}
		}
	})
}
