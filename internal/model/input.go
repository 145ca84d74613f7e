package model

import (
	"sync/atomic"
	"time"

	"monopod/internal/cause"
	"monopod/manifests"
)

// Input is the state of a file, directory or URL that contains manifests.
type Input struct {
	Source string `json:"source"`
	// Input is the path or URL.
	Input string     `json:"input"`
	State InputState `json:"state"`
	// Errors are the reasons of the state, one line each.
	Errors []string `json:"errors,omitempty"`
	// Pods are the keys ("namespace/name") of the pods in the input; unless it is accepted, those of its last good content.
	Pods []string `json:"pods,omitempty"`
	// Objects are the other documents in the input, for example "ConfigMap default/app".
	Objects []string `json:"objects,omitempty"`
	// Since is when the input entered this state.
	Since time.Time `json:"since"`
	// FromDisk is when the current content was received, if it is the cached copy on disk and the source has not answered in this run;
	// otherwise zero.
	FromDisk time.Time `json:"fromDisk,omitzero"`
	// Cause is why the input is Unreachable; otherwise zero.
	Cause cause.Cause `json:"-"`
	// Mistaken are the pods and workloads whose documents were rejected, if they can be named; only for remote inputs.
	Mistaken []Mistaken `json:"-"`
	// Problems are the structured Errors.
	Problems []Problem `json:"-"`
	// Retry is when it is requested again; nil if it is read on change.
	Retry *Retry `json:"-"`
}

// Problem is an error at a location in an input.
type Problem struct {
	// Text is the corresponding line of Errors.
	Text string
	manifests.Error
}

// Retry is the time of the next request. It changes more often than reports, so reports share it.
type Retry struct{ at atomic.Int64 }

// Set sets the time; the zero time means no failure.
func (r *Retry) Set(at time.Time) {
	if at.IsZero() {
		r.at.Store(0)
		return
	}
	r.at.Store(at.UnixNano())
}

// Time returns the time; zero means no failure.
func (r *Retry) Time() time.Time {
	if r == nil || r.at.Load() == 0 {
		return time.Time{}
	}
	return time.Unix(0, r.at.Load())
}

// Mistaken is a document that was rejected.
type Mistaken struct {
	manifests.ObjectID
	// Where is the position as file:line.
	Where string
}

// InputState is the state of an Input.
type InputState string

// States of an Input.
const (
	InputAccepted    InputState = "Accepted"
	InputRefused     InputState = "Refused"     // invalid; the last good content stays
	InputIgnored     InputState = "Ignored"     // not a manifest by its name or type, or without a supported object
	InputUnreachable InputState = "Unreachable" // cannot be read now; the last good content stays
	InputConflict    InputState = "Conflict"    // defines a pod or object that an input of higher precedence defines
)
