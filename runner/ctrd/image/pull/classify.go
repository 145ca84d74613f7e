package pull

import (
	"encoding/json"
	"errors"
	"strings"
)

// failedOnContent reports whether a pull failed to read a manifest or to unpack a layer, as opposed to failures of registry and network, after
// which local content need not be checked. containerd returns the unpack errors as text.
func failedOnContent(err error) bool {
	if err == nil {
		return false
	}
	if _, bad := errors.AsType[*json.SyntaxError](err); bad {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "extract layer") || strings.Contains(text, "wrong diff id")
}
