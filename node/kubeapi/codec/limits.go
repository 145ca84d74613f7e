package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"monopod/internal/jsonlimit"
	"monopod/internal/quantity"
	"monopod/manifests/document"
)

const (
	// maxValues limits the values of a body: each may take a kilobyte once decoded, but only two bytes before.
	maxValues = 50_000
	// maxDepth limits how deeply values are nested.
	maxDepth = 100
)

// JSON returns a body of JSON or YAML as JSON, within the limits of values, depth and aliases. Errors have code 400.
func JSON(body []byte) ([]byte, error) {
	data, _, err := toJSON(body, mediaYAML, metav1.FieldValidationIgnore)
	if err != nil {
		if _, known := err.(apierrors.APIStatus); !known {
			err = apierrors.NewBadRequest(text(err))
		}
		return nil, err
	}
	return data, nil
}

// toJSON returns the body as JSON, and the duplicate keys of YAML.
func toJSON(body []byte, media, validation string) (data []byte, duplicates []string, err error) {
	data = body
	start := bytes.TrimLeft(body, " \t\r\n")
	if isJSON := bytes.HasPrefix(start, []byte("{")) && json.Valid(body); media == mediaYAML && !isJSON { // YAML in braces need not be JSON
		size := 0
		if err := document.CheckLimits(document.Document{Data: body}, &size); err != nil {
			return nil, nil, err
		}
		if data, err = yaml.YAMLToJSON(body); err != nil {
			return nil, nil, err
		}
		if validation != metav1.FieldValidationIgnore {
			if _, err := yaml.YAMLToJSONStrict(body); err != nil {
				duplicates = yamlErrors(err)
			}
		}
	}
	if _, err := io.Copy(io.Discard, jsonlimit.NewReader(bytes.NewReader(data), maxValues)); err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("the body has more than %d values", maxValues))
	}
	if tooDeep(data) {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("the body is nested deeper than %d levels", maxDepth))
	}
	return data, duplicates, nil
}

// tooDeep reports whether brackets outside of strings are nested too deeply.
func tooDeep(data []byte) bool {
	depth, quoted, escaped := 0, false, false
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case c == '"':
			quoted = !quoted
		case quoted:
			escaped = c == '\\'
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// checkRecords limits the memory that a protobuf body takes once decoded: an empty list element is two bytes in the body, and may be a
// kilobyte in memory. ConfigMaps and Secrets are not counted: their values may look like protobuf, and few of their fields are lists.
func checkRecords(raw []byte, into schema.GroupVersionKind) error {
	if into.Kind == "ConfigMap" || into.Kind == "Secret" {
		return nil
	}
	n, tiny := records(raw, 0)
	if n > maxValues {
		return apierrors.NewBadRequest(fmt.Sprintf("the body has more than %d values", maxValues))
	}
	if tiny {
		return errTiny()
	}
	return nil
}

// number matches the text of quantities.
var number = regexp.MustCompile(`^\s*[+-]?[0-9.]+([eE][+-]?[0-9]+|[a-zA-Z]{0,2})\s*$`)

func errTiny() error {
	return apierrors.NewBadRequest("a quantity in the body has too many digits or too large an exponent")
}

// records counts the fields of a message, and of fields that may be messages, up to the first invalid one, where a decoder also stops. Tiny
// reports that a first field is a hostile quantity: a quantity is a message whose first field is its text.
func records(b []byte, depth int) (n int, tiny bool) {
	for len(b) > 0 {
		key, size := binary.Uvarint(b)
		if size <= 0 {
			return n, tiny
		}
		b = b[size:]
		n++
		length, used := uint64(0), 0
		switch key & 7 {
		case 0:
			_, used = binary.Uvarint(b)
		case 1:
			used = 8
		case 2:
			length, used = binary.Uvarint(b)
		case 3, 4: // a group, which decoders skip
			continue
		case 5:
			used = 4
		}
		if used <= 0 || used > len(b) || length > uint64(len(b)-used) {
			return n, tiny
		}
		b = b[used:]
		if depth < maxProtobufDepth {
			inner, found := records(b[:length], depth+1)
			n, tiny = n+inner, tiny || found || key == firstText && hostile(b[:length])
		}
		b = b[length:]
	}
	return n, tiny
}

// firstText is the key of a first field that is text.
const firstText = 1<<3 | 2

func hostile(text []byte) bool { return quantity.Hostile(string(text)) && number.Match(text) }

// maxProtobufDepth is the depth to which messages are counted. Kubernetes types are nested less deeply.
const maxProtobufDepth = 20
