package model

import "time"

// Pull is an image pull in progress.
type Pull struct {
	// Image is the requested reference, or its normalized form.
	Image string    `json:"image"`
	Since time.Time `json:"since"`
	// Done and Total are in bytes. Total is 0 until the registry has returned the manifest.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}
