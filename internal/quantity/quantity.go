// Package quantity decodes objects whose quantities may be hostile: apimachinery takes hours for 1e-2147483648, and for a number with a
// million digits. All typed objects of manifests and of clients are decoded here, and all quantities are parsed here; internal/house
// enforces it.
//
// It must not know kinds: fields of type resource.Quantity are found in the Go types. Other fields, such as the data of ConfigMaps and the
// variables of containers, may have any text. Goroutines: none.
package quantity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"
)

// Limits of decoded quantities.
const (
	// maxLength is the maximum length of a quantity, and maxExponent the maximum number of digits of its decimal exponent. 64 bits need 20
	// digits, and values below a billionth are rounded up.
	maxLength, maxExponent = 128, 2
)

// Parse is resource.ParseQuantity in bounded time.
func Parse(text string) (resource.Quantity, error) {
	if Hostile(text) {
		return resource.Quantity{}, refused(text)
	}
	return resource.ParseQuantity(text)
}

// Hostile reports whether a quantity takes long to parse.
func Hostile(text string) bool {
	if len(text) > maxLength {
		return true
	}
	at := strings.LastIndexAny(text, "eE")
	return at >= 0 && len(strings.TrimLeft(text[at+1:], "+-0")) > maxExponent && strings.Trim(text[at+1:], "+-0123456789 ") == ""
}

func refused(text string) error {
	if len(text) > maxLength {
		return fmt.Errorf("the quantity %.20s... has more than %d characters", text, maxLength)
	}
	return fmt.Errorf("the exponent of the quantity %s is too large: write it as a decimal number with a unit", text)
}

// Unmarshal is kjson.UnmarshalCaseSensitivePreserveInts in bounded time.
func Unmarshal(data []byte, into any) error {
	if err := Check(data, reflect.TypeOf(into)); err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(data, into)
}

// UnmarshalStrict is kjson.UnmarshalStrict in bounded time.
func UnmarshalStrict(data []byte, into any) (strict []error, err error) {
	if err := Check(data, reflect.TypeOf(into)); err != nil {
		return nil, err
	}
	return kjson.UnmarshalStrict(data, into)
}

// Check returns an error if JSON that is decoded into a type has a hostile quantity. Invalid JSON has none: the decoder refuses it first.
func Check(data []byte, into reflect.Type) error {
	if !suspect(data) || !json.Valid(data) { // json.Valid limits the depth to 10,000
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return check(d, into)
}

// suspect reports whether JSON may have a hostile quantity: such a quantity has an exponent of many digits, or is long itself.
func suspect(data []byte) bool {
	digits, run := 0, 0
	exponent := false
	for _, c := range data {
		switch {
		case c >= '0' && c <= '9', c == '.':
			run++
			if exponent && (c != '0' || digits > 0) {
				digits++
			}
		case (c == 'e' || c == 'E') && run > 0:
			exponent, digits = true, 0
			run++
		case (c == '+' || c == '-') && exponent && digits == 0:
			run++
		default:
			exponent, digits, run = false, 0, 0
		}
		if digits > maxExponent || run >= maxLength-16 { // a suffix and spaces may follow
			return true
		}
	}
	return false
}

var quantityType = reflect.TypeFor[resource.Quantity]() //nolint:gochecknoglobals // a constant

// check checks the next value of d, which is decoded into t; a nil t has no quantities.
func check(d *json.Decoder, t reflect.Type) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch token := token.(type) {
	case json.Delim:
		object, key := token == '{', ""
		for d.More() {
			if object {
				token, err := d.Token()
				if err != nil {
					return err
				}
				key, _ = token.(string)
			}
			if err := check(d, child(t, object, key)); err != nil {
				return err
			}
		}
		_, err = d.Token() // the closing delimiter
		return err
	case json.Number:
		return leaf(token.String(), t)
	case string:
		return leaf(token, t)
	}
	return nil
}

func leaf(text string, t reflect.Type) error {
	if t == quantityType && Hostile(text) {
		return refused(text)
	}
	return nil
}

// child returns the type of a list element, or of a field or map value with a key; nil if it has no quantities.
func child(t reflect.Type, object bool, key string) reflect.Type {
	switch {
	case t == nil:
		return nil
	case object && t.Kind() == reflect.Map, !object && t.Kind() == reflect.Slice:
		return t.Elem()
	case object && t.Kind() == reflect.Struct:
		return field(t, key)
	}
	return nil
}

// field returns the type of the field with a name in JSON.
func field(t reflect.Type, name string) reflect.Type {
	var inline []reflect.Type
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == name && name != "" || tag == "" && !f.Anonymous && f.Name == name:
			return f.Type
		case tag == "" && f.Anonymous:
			inline = append(inline, f.Type)
		}
	}
	for _, t := range inline {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct {
			if found := field(t, name); found != nil {
				return found
			}
		}
	}
	return nil
}
