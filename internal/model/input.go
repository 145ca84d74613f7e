package model

import (
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
