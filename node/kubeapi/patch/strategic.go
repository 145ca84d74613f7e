package patch

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// strategic applies a strategic merge patch. List elements are searched linearly, so lists that are long on both sides are refused.
func strategic(target map[string]any, patch []byte, like any) (result any, err error) {
	var change map[string]any
	if err := kjson.Unmarshal(patch, &change); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if change == nil {
		return target, nil // null changes nothing, as in kube-apiserver
	}
	elements := countElements(change)
	if pairs := elements * (elements + longestList(target)); pairs > maxPairs {
		return nil, tooLarge("the lists of the strategic merge patch are too long: it has %d elements", elements)
	}
	// The library panics on malformed patches, which must not end the connection.
	defer func() {
		if caught := recover(); caught != nil {
			err = apierrors.NewBadRequest(fmt.Sprintf("the strategic merge patch is malformed: %.200v", caught))
		}
	}()
	patched, err := strategicpatch.StrategicMergeMapPatch(target, change, like)
	switch {
	case err == nil:
		return patched, nil
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return nil, unprocessable(err)
}

// countElements counts the elements of all lists in a value.
func countElements(value any) int {
	n := 0
	switch v := value.(type) {
	case map[string]any:
		for _, below := range v {
			n += countElements(below)
		}
	case []any:
		n = len(v)
		for _, below := range v {
			n += countElements(below)
		}
	}
	return n
}

// longestList is the length of the longest list in a value.
func longestList(value any) int {
	n := 0
	switch v := value.(type) {
	case map[string]any:
		for _, below := range v {
			n = max(n, longestList(below))
		}
	case []any:
		n = len(v)
		for _, below := range v {
			n = max(n, longestList(below))
		}
	}
	return n
}
