package program

import (
	"fmt"
	"strings"

	"monopod/internal/config"
	"monopod/internal/objects"
	"monopod/manifests"
	"monopod/manifests/kinds"
)

// Object is what TYPE/NAME means.
type Object struct {
	Kind string
	Key  manifests.Key
}

// String returns "deployment default/web".
func (o Object) String() string {
	if o.Key.Namespace == "" {
		return strings.ToLower(o.Kind) + " " + o.Key.Name
	}
	return strings.ToLower(o.Kind) + " " + o.Key.String()
}

// ObjectArg reads "TYPE NAME", "TYPE/NAME", or the name of a pod.
func (c *ClientFlags) ObjectArg(args []string) (Object, error) {
	word, name, slash := strings.Cut(args[0], "/")
	if len(args) == 2 {
		word, name, slash = args[0], args[1], true
	}
	kind, namespaced, known := objects.Find(word)
	switch {
	case len(args) == 2 && !known:
		return Object{}, UnknownKind(args[0])
	case !slash && known && kind == "Pod":
		return Object{}, Usagef("expected pod NAME")
	case !slash || !known: // NAME or NAMESPACE/NAME
		key, err := c.PodKey(args[0])
		return Object{Kind: "Pod", Key: key}, err
	case !namespaced && name != "" && !strings.Contains(name, "/"):
		return Object{Kind: kind, Key: manifests.Key{Name: name}}, nil
	case kind == "Pod":
		key, err := c.PodKey(name)
		return Object{Kind: kind, Key: key}, err
	}
	key, err := c.PodKey(name)
	if err != nil {
		return Object{}, Usagef("%q is not the name of a %s; write NAME or NAMESPACE/NAME", name, kind)
	}
	return Object{Kind: kind, Key: key}, nil
}

// UnknownKind is the error about a word that is no kind.
func UnknownKind(word string) error {
	return Usagef("unknown kind %q%s", word, AppendHint(config.DidYouMean(word, KindWords())))
}

// KindWords are those that `get` knows.
func KindWords() []string {
	return append([]string{"all", "sources", "nodes", "events"}, Plurals()...)
}

// Plurals are the kinds of manifests as kubectl names them.
func Plurals() []string {
	var words []string
	for _, kind := range kinds.All() {
		words = append(words, Plural(kind))
	}
	return words
}

// Plural is how kubectl names a kind in lists.
func Plural(kind string) string {
	word := strings.ToLower(kind)
	if strings.HasSuffix(word, "s") {
		return word + "es"
	}
	return word + "s"
}

// NotFoundError is returned for an object that does not exist.
type NotFoundError struct{ Object }

// Error implements error.
func (e NotFoundError) Error() string {
	if e.Key.Namespace == "" {
		return fmt.Sprintf("%s %q not found", strings.ToLower(e.Kind), e.Key.Name)
	}
	return fmt.Sprintf("%s %q not found in namespace %q", strings.ToLower(e.Kind), e.Key.Name, e.Key.Namespace)
}

// WaitArgs reads "POD...", "KIND/NAME..." or "KIND NAME...".
func (c *ClientFlags) WaitArgs(args []string) ([]Object, error) {
	var word []string
	if _, _, known := objects.Find(args[0]); known && len(args) > 1 {
		word, args = args[:1:1], args[1:]
	}
	var all []Object
	for _, arg := range args {
		one, err := c.ObjectArg(append(word, arg))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// Elsewhere reports whether the socket belongs to another instance than the configuration.
func (c *ClientFlags) Elsewhere(cfg *config.Loaded) bool {
	if c.Socket != "" {
		return cfg.Socket != c.Socket
	}
	fromEnvironment := cfg.Sources["socket"] == config.Key{Path: "socket"}.Env()
	return fromEnvironment && strings.HasPrefix(cfg.Sources["rootDirectory"], "default")
}
