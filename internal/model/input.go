package model

import (
	"time"

	"monopod/internal/cause"
	"monopod/manifests"
)

// Input is the state of one file, directory or URL that manifests are read from.
type Input struct {
	Source string `json:"source"`
	// Input is its path or URL.
	Input string     `json:"input"`
	State InputState `json:"state"`
	// Errors are the reasons of the state, one line each.
	Errors []string `json:"errors,omitempty"`
	// Pods are the keys ("namespace/name") of the pods that it contributes; those of the last good content unless it is accepted.
	Pods []string `json:"pods,omitempty"`
	// Objects are the other documents that it contributes, like "ConfigMap default/app".
	Objects []string `json:"objects,omitempty"`
	// Since is when the input came into this state.
	Since time.Time `json:"since"`
	// FromDisk is when the current content was received, as long as it is the copy on disk and the source has not answered in this run;
	// zero otherwise.
	FromDisk time.Time `json:"fromDisk,omitzero"`
	// Cause is why it is Unreachable; zero otherwise.
	Cause cause.Cause `json:"-"`
	// Mistaken are the pods and workloads whose documents were refused, as far as they can be named; only for remote inputs.
	Mistaken []Mistaken `json:"-"`
}

// Mistaken is a document that was refused.
type Mistaken struct {
	manifests.ObjectID
	// Where is its place, as file:line.
	Where string
}

// InputState classifies an Input.
type InputState string

// States of an Input.
const (
	InputAccepted    InputState = "Accepted"
	InputRefused     InputState = "Refused"     // invalid; the last good content stays
	InputIgnored     InputState = "Ignored"     // not a manifest by its name or type, or without an object that is supported
	InputUnreachable InputState = "Unreachable" // cannot be read now; the last good content stays
	InputConflict    InputState = "Conflict"    // defines a pod or object that an input of higher precedence defines
)
