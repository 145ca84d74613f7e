// Package patch applies the patches of the Kubernetes API to objects as JSON: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic
// merge patch.
//
// It must not know where objects come from, nor what they mean. Memory and time of all patches are bounded: the number of operations, the
// bytes that they copy, and the work that they cause. Errors are those of kube-apiserver, as *apierrors.StatusError.
//
// Goroutines: none.
package patch

import (
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// Limits of patches. The limits of bytes and operations are the same as in kube-apiserver.
const (
	// MaxBytes is the size limit of a patch, of its result, and of all copies made by a JSON patch.
	MaxBytes = 3 << 20
	// MaxOperations is the maximum number of operations in a JSON patch.
	MaxOperations = 10_000
	// maxWork bounds the number of values that a JSON patch moves and compares: 10,000 inserts at the front of a long list would otherwise
	// take minutes.
	maxWork = 20_000_000
	// maxPairs bounds how many pairs of list elements a strategic patch compares.
	maxPairs = 25_000_000
)

// Kind is a type of patch: a media type.
type Kind string

// The supported patch types. Apply patches are merged by package managed.
const (
	JSON      Kind = "application/json-patch+json"
	Merge     Kind = "application/merge-patch+json"
	Strategic Kind = "application/strategic-merge-patch+json"
)

// Apply returns the result of applying a patch to a document, which is a JSON object. like is an empty object of the document's type, which
// defines how lists are merged; only strategic patches need it.
func Apply(kind Kind, doc, patch []byte, like any) ([]byte, error) {
	if len(patch) > MaxBytes {
		return nil, tooLarge("the patch is larger than %d bytes", MaxBytes)
	}
	var target map[string]any
	if err := kjson.Unmarshal(doc, &target); err != nil {
		return nil, fmt.Errorf("decode the object that is patched: %w", err)
	}
	var result any
	var err error
	switch kind {
	case JSON:
		result, err = operations(target, patch)
	case Merge:
		result, err = merge(target, patch)
	case Strategic:
		result, err = strategic(target, patch, like)
	default:
		return nil, fmt.Errorf("unknown kind of patch %q", kind)
	}
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(result)
	if err != nil {
		return nil, unprocessable(err)
	}
	if len(out) > MaxBytes {
		return nil, tooLarge("the patched object is larger than %d bytes", MaxBytes)
	}
	return out, nil
}

// merge implements RFC 7386.
func merge(target map[string]any, patch []byte) (any, error) {
	var change map[string]any
	if err := kjson.Unmarshal(patch, &change); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if change == nil {
		return nil, apierrors.NewBadRequest("error decoding patch: a merge patch is an object")
	}
	return mergeInto(target, change), nil
}

// mergeInto merges change into target, which is modified.
func mergeInto(target, change map[string]any) map[string]any {
	for key, value := range change {
		switch value := value.(type) {
		case nil:
			delete(target, key)
		case map[string]any:
			below, ok := target[key].(map[string]any)
			if !ok {
				below = map[string]any{}
			}
			target[key] = mergeInto(below, value)
		default:
			target[key] = value
		}
	}
	return target
}

func tooLarge(format string, args ...any) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(format, args...))
}

// unprocessable returns kube-apiserver's error for a patch that does not fit the object, plus the cause, which kube-apiserver omits.
func unprocessable(err error) error {
	status := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	status.ErrStatus.Message += ": " + err.Error()
	return status
}
