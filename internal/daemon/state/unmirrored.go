package state

import (
	"sync"

	"monopod/internal/printer"
	"monopod/manifests"
)

// Unmirrored holds the pods that the API server does not show as they are, with the reasons. The zero value and nil are empty.
type Unmirrored struct {
	mu      sync.Mutex
	reasons map[manifests.Key]string
}

// Set stores why a pod is not shown; nil: it is shown.
func (u *Unmirrored) Set(key manifests.Key, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		delete(u.reasons, key)
		return
	}
	if u.reasons == nil {
		u.reasons = map[manifests.Key]string{}
	}
	u.reasons[key] = printer.OneLine(err.Error())
}

// Reason returns why a pod is not shown; empty: it is shown.
func (u *Unmirrored) Reason(key manifests.Key) string {
	if u == nil {
		return ""
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reasons[key]
}
