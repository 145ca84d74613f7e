package probe

import "time"

// State is the state of a probe. It is a value: Next returns the following one.
//
//	Readiness starts as Failure, Liveness as Success, Startup as Unknown
//	    outcome --> same as before: run+1, else run=1 --> run >= threshold: it is the result
type State struct {
	// Result is the result after thresholds: Success, Failure or Unknown.
	Result Result
	// Since is when Result last changed.
	Since time.Time
	// Due is when the next attempt is due; zero means never.
	Due time.Time
	// Last is the latest attempt, At its time.
	Last Outcome
	At   time.Time
	// Run is the number of consecutive attempts with the same result as the latest that counts.
	Run int
	// counted is the result of the latest attempt that counts.
	counted Result
}

// First returns the initial state of a probe of a container that started at the given time. before is the result from an earlier agent,
// Unknown if there is none. spread, from 0 to 1, is the part of a period that delays the first attempt: 0 for a container that has just
// started, random for one that was found running, so that not all are probed at once.
func (c Config) First(started, now time.Time, before Result, spread float64) State {
	if started.After(now) {
		started = now // the clock was set back since
	}
	s := State{Result: before, Since: now, Due: started.Add(c.InitialDelay)}
	if before == Unknown {
		switch c.Kind {
		case Readiness:
			s.Result = Failure
		case Liveness:
			s.Result = Success
		case Startup:
		}
	}
	if s.Due.Before(now) {
		s.Due = now.Add(time.Duration(spread * float64(c.Period)))
	}
	if c.Kind == Startup && before == Success {
		s.Due = time.Time{}
	}
	return s
}

// Next returns the state after an attempt that began at the given time. A startup probe that has succeeded, and one whose failure ends its
// container, makes no further attempts.
func (c Config) Next(s State, began, now time.Time, o Outcome) State {
	s.Last, s.At = o, began
	s.Due = began.Add(c.Period)
	if s.Due.Before(now) {
		s.Due = now // a slow attempt delays the next one; missed attempts are not made up for
	}
	result := o.Result
	switch result {
	case Warning:
		result = Success
	case Errored, Unknown:
		return s
	}
	if result == s.counted {
		s.Run++
	} else {
		s.counted, s.Run = result, 1
	}
	if result == Success && s.Run < c.SuccessThreshold || result == Failure && s.Run < c.FailureThreshold {
		return s
	}
	if s.Result != result {
		s.Result, s.Since = result, now
	}
	if c.Kind == Startup || c.Kind == Liveness && result == Failure {
		s.Due = time.Time{}
	}
	return s
}

// Failing reports whether the latest attempts that count have failed, whether or not the threshold is reached.
func (s State) Failing() bool { return s.counted == Failure }
