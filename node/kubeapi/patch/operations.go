package patch

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// operation is one operation of a JSON patch. Value is nil if it was null or absent, which kube-apiserver does not distinguish either.
type operation struct {
	op, path, from string
	value          any
}

var errWork = errors.New("the patch moves too much")

// document is the target of a JSON patch.
type document struct {
	root any
	// copied counts the bytes that operations copied, work the values that they moved or compared.
	copied, work int
}

// operations applies a JSON patch.
func operations(target map[string]any, patch []byte) (any, error) {
	list, err := parse(patch)
	if err != nil {
		return nil, err
	}
	d := &document{root: target}
	for i, o := range list {
		err := d.apply(o)
		if errors.Is(err, errWork) || d.copied > MaxBytes {
			return nil, tooLarge("operation %d of the JSON patch copies or moves too much data; split the patch", i)
		}
		if err != nil {
			return nil, unprocessable(fmt.Errorf("operation %d of the JSON patch (%s %s): %w", i, o.op, clip(o.path), err))
		}
	}
	if _, ok := d.root.(map[string]any); !ok {
		return nil, unprocessable(errors.New("the JSON patch replaces the object by something else"))
	}
	return d.root, nil
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

func parse(patch []byte) ([]operation, error) {
	bad := func(format string, args ...any) error {
		return apierrors.NewBadRequest("error decoding patch: " + fmt.Sprintf(format, args...))
	}
	var items []any
	if err := kjson.Unmarshal(patch, &items); err != nil {
		return nil, bad("%v", err)
	}
	if len(items) > MaxOperations {
		return nil, tooLarge("The allowed maximum operations in a JSON patch is %d, got %d", MaxOperations, len(items))
	}
	list := make([]operation, 0, len(items))
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, bad("element %d is not an operation", i)
		}
		var o operation
		for key, into := range map[string]*string{"op": &o.op, "path": &o.path, "from": &o.from} {
			v, has := m[key]
			if !has {
				continue
			}
			if *into, ok = v.(string); !ok {
				return nil, bad("%s of operation %d is not a string", key, i)
			}
		}
		o.value = m["value"]
		list = append(list, o)
	}
	return list, nil
}

func (d *document) apply(o operation) error {
	path, err := pointer(o.path)
	if err != nil {
		return err
	}
	d.work += len(path)
	switch o.op {
	case "add":
		return d.add(path, o.value)
	case "remove":
		_, err := d.remove(path)
		return err
	case "replace":
		return d.replace(path, o.value)
	case "move", "copy":
		return d.transfer(o, path)
	case "test":
		return d.test(path, o.value)
	}
	return fmt.Errorf("unknown operation %q", clip(o.op))
}

// pointer splits a JSON pointer (RFC 6901).
func pointer(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, fmt.Errorf("the path %q does not start with /", clip(s))
	}
	parts := strings.Split(s[1:], "/")
	for i, p := range parts {
		if strings.Contains(p, "~") {
			parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
		}
	}
	return parts, nil
}

// get returns the value at a path.
func (d *document) get(path []string) (any, error) {
	at := d.root
	for i, key := range path {
		switch in := at.(type) {
		case map[string]any:
			value, has := in[key]
			if !has {
				return nil, missing(path[:i+1])
			}
			at = value
		case []any:
			n, err := index(key, len(in)-1)
			if err != nil {
				return nil, err
			}
			at = in[n]
		default:
			return nil, missing(path[:i+1])
		}
	}
	return at, nil
}

// field returns the value at a path: nil for a missing field of an existing object. RFC 6902 makes that an error for replace and copy, but
// the library of kube-apiserver does not, and clients replace the omitted replicas of a Scale.
func (d *document) field(path []string) (any, error) {
	if len(path) == 0 {
		return d.root, nil
	}
	parent, err := d.get(path[:len(path)-1])
	if err != nil {
		return nil, err
	}
	if in, ok := parent.(map[string]any); ok {
		return in[path[len(path)-1]], nil
	}
	return d.get(path)
}

func missing(path []string) error {
	return fmt.Errorf("%s does not exist", clip("/"+strings.Join(path, "/")))
}

// index parses the index of a list element. Negative numbers count from the end, as kube-apiserver allows.
func index(key string, most int) (int, error) {
	n, err := strconv.Atoi(key)
	if err != nil {
		return 0, fmt.Errorf("%q is not a list index", clip(key))
	}
	if n < 0 {
		n += most + 1
	}
	if n < 0 || n > most {
		return 0, fmt.Errorf("the list has no index %s", clip(key))
	}
	return n, nil
}

// set replaces the value at the path, for example by a list that was reallocated.
func (d *document) set(path []string, value any) error {
	if len(path) == 0 {
		d.root = value
		return nil
	}
	last := path[len(path)-1]
	parent, err := d.get(path[:len(path)-1])
	if err != nil {
		return err
	}
	switch in := parent.(type) {
	case map[string]any:
		in[last] = value
	case []any:
		n, err := index(last, len(in)-1)
		if err != nil {
			return err
		}
		in[n] = value
	default:
		return missing(path)
	}
	return nil
}

func (d *document) add(path []string, value any) error {
	if len(path) == 0 {
		d.root = value
		return nil
	}
	parent, err := d.get(path[:len(path)-1])
	if err != nil {
		return err
	}
	list, ok := parent.([]any)
	if !ok {
		return d.set(path, value)
	}
	at := len(list)
	if last := path[len(path)-1]; last != "-" {
		if at, err = index(last, len(list)); err != nil {
			return err
		}
	}
	if err := d.cost(len(list) - at); err != nil {
		return err
	}
	return d.set(path[:len(path)-1], slices.Insert(list, at, value))
}

func (d *document) remove(path []string) (any, error) {
	if len(path) == 0 {
		return nil, errors.New("the whole object cannot be removed")
	}
	old, err := d.get(path)
	if err != nil {
		return nil, err
	}
	last := path[len(path)-1]
	parent, _ := d.get(path[:len(path)-1]) // cannot fail: the path exists, so its parent does
	switch in := parent.(type) {
	case map[string]any:
		delete(in, last)
		return old, nil
	case []any:
		n, err := index(last, len(in)-1)
		if err != nil {
			return nil, err
		}
		if err := d.cost(len(in) - n); err != nil {
			return nil, err
		}
		return old, d.set(path[:len(path)-1], slices.Delete(in, n, n+1))
	}
	return nil, missing(path)
}

func (d *document) replace(path []string, value any) error {
	if _, err := d.field(path); err != nil {
		return err
	}
	return d.set(path, value)
}

// transfer executes move and copy.
func (d *document) transfer(o operation, path []string) error {
	from, err := pointer(o.from)
	if err != nil {
		return err
	}
	d.work += len(from)
	if o.op == "copy" {
		value, err := d.field(from)
		if err != nil {
			return err
		}
		if value, err = d.copy(value); err != nil {
			return err
		}
		return d.add(path, value)
	}
	if len(path) > len(from) && slices.Equal(path[:len(from)], from) {
		return errors.New("it moves a value into itself")
	}
	value, err := d.remove(from)
	if err != nil {
		return err
	}
	return d.add(path, value)
}

// copy returns a deep copy, and counts its size.
func (d *document) copy(value any) (any, error) {
	switch v := value.(type) {
	case map[string]any:
		d.copied += 2
		c := make(map[string]any, len(v))
		for key, below := range v {
			d.copied += len(key) + 4
			below, err := d.copy(below)
			if err != nil {
				return nil, err
			}
			c[key] = below
		}
		return c, nil
	case []any:
		d.copied += 2 + len(v)
		if d.copied > MaxBytes {
			return nil, errWork
		}
		c := make([]any, len(v))
		for i, below := range v {
			below, err := d.copy(below)
			if err != nil {
				return nil, err
			}
			c[i] = below
		}
		return c, nil
	case string:
		d.copied += len(v) + 2
	default:
		d.copied += 5
	}
	if d.copied > MaxBytes {
		return nil, errWork
	}
	return value, nil
}

func (d *document) test(path []string, value any) error {
	have, err := d.get(path)
	if err != nil && value == nil {
		return nil // an absent value is null, as in kube-apiserver
	}
	if err != nil {
		return err
	}
	if err := d.cost(size(have)); err != nil {
		return err
	}
	if !equal(have, value) {
		return fmt.Errorf("testing value %s failed", clip("/"+strings.Join(path, "/")))
	}
	return nil
}

func (d *document) cost(n int) error {
	if d.work += n; d.work > maxWork {
		return errWork
	}
	return nil
}

// size counts all nested values.
func size(value any) int {
	n := 1
	switch v := value.(type) {
	case map[string]any:
		for _, below := range v {
			n += size(below)
		}
	case []any:
		for _, below := range v {
			n += size(below)
		}
	}
	return n
}

// equal compares JSON values; numbers are compared numerically.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			if other, has := b[key]; !has || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if i, ok := b.(int64); ok {
			return a == float64(i)
		}
	}
	return reflect.DeepEqual(a, b)
}
