package explain

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/document"
	"monopod/manifests/schema"
)

// Messages of Kubernetes or of a parser name the problem. The advice of this file adds what to write.

// Advice returns what to write instead of an invalid value; empty if the error is clear enough. spec is that of the pod, or nil.
func Advice(e *field.Error, spec *corev1.PodSpec) string {
	was := fmt.Sprint(e.BadValue)
	switch path := indexes().ReplaceAllString(e.Field, "[]"); {
	case e.Type == field.ErrorTypeRequired:
		return requiredAdvice(path)
	case e.Type == field.ErrorTypeNotSupported && strings.HasSuffix(path, ".imagePullPolicy") && newerPolicy(was):
		return "newer is a policy of podman: use Always, or IfNotPresent to start without network"
	case e.Type == field.ErrorTypeNotSupported:
		return didYouMean(was, quoted(e.Detail))
	case e.Type == field.ErrorTypeInvalid && strings.HasPrefix(e.Detail, "a lowercase RFC 1123"):
		if name := asName(was); name != "" {
			return fmt.Sprintf("did you mean %q?", name)
		}
	case e.Type == field.ErrorTypeInvalid && strings.HasSuffix(path, ".schedule"):
		return `write minute, hour, day, month and weekday, as in "*/5 * * * *"`
	case e.Type == field.ErrorTypeInvalid && strings.HasSuffix(path, ".template.metadata.labels") && strings.Contains(e.Detail, "selector"):
		return "add its labels to spec.template.metadata.labels"
	case e.Type == field.ErrorTypeNotFound && strings.HasSuffix(path, ".volumeMounts[].name") && spec != nil:
		var names []string
		for i := range spec.Volumes {
			names = append(names, spec.Volumes[i].Name)
		}
		return cmp.Or(didYouMean(was, names), "spec.volumes has no volume of that name")
	}
	return ""
}

// requiredAdvice shows how to write fields that nearly every manifest has.
func requiredAdvice(path string) string {
	switch {
	case path == "metadata.name":
		return "give it a name, as in metadata: {name: web}"
	case path == "spec.selector":
		return "use labels of spec.template.metadata.labels, as in selector: {matchLabels: {app: web}}"
	case path == "spec.ports":
		return "add the port that it listens on, as in ports: [{port: 80}]"
	case strings.HasSuffix(path, "spec.containers"):
		return "add at least one, with a name and an image"
	case strings.HasSuffix(path, "ontainers[].name"):
		return "give the container a name, as in name: web"
	case strings.HasSuffix(path, "ontainers[].image"):
		return "set the image that it runs, as in image: docker.io/library/busybox:1.37"
	case strings.HasSuffix(path, "Probe"):
		return "write one of exec, httpGet, tcpSocket and grpc"
	}
	return ""
}

var inQuotes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"([^"]*)"`) })

func quoted(text string) []string {
	var all []string
	for _, m := range inQuotes().FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

func didYouMean(name string, candidates []string) string {
	if guess := Nearest(name, candidates); guess != "" && guess != name {
		return fmt.Sprintf("did you mean %q?", guess)
	}
	return ""
}

var notInNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^a-z0-9.]+`) })

// asName makes a name that is allowed anywhere of one that is not; empty when it does not know how.
func asName(text string) string {
	name := strings.Trim(notInNames().ReplaceAllString(strings.ToLower(text), "-"), "-.")
	if len(validation.IsDNS1123Label(name)) > 0 {
		name = strings.ReplaceAll(name, ".", "-")
	}
	if name == text || len(validation.IsDNS1123Label(name)) > 0 {
		return ""
	}
	return name
}

// Follows reports whether an error only follows from another one: a mount of a volume that exists, and that has a mistake of its own.
func Follows(e *field.Error, spec *corev1.PodSpec) bool {
	path := indexes().ReplaceAllString(e.Field, "[]")
	if e.Type != field.ErrorTypeNotFound || !strings.HasSuffix(path, ".volumeMounts[].name") && !strings.HasSuffix(path, ".volumeDevices[].name") {
		return false
	}
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == fmt.Sprint(e.BadValue) })
}

// AlreadyReported reports whether a missing field was misspelled or misplaced, and found has that.
func AlreadyReported(e *field.Error, path string, found []document.Problem) bool {
	parent, name := path, ""
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	for _, p := range found {
		beside := strings.LastIndexByte(p.Path, '.') == len(parent) && strings.HasPrefix(p.Path, parent)
		if e.Type == field.ErrorTypeRequired && (beside && p.Hint == fmt.Sprintf("did you mean %q?", name) || p.Hint == elsewhere(path)) {
			return true
		}
	}
	return false
}

func elsewhere(path string) string { return "there is a field of this name at " + path }

// How short forms are written, those of other tools among them: "80:80", "KEY=value", "data:/data".
var (
	plainPort  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d+)$`) })
	mappedPort = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d+):(\d+)$`) })
	assignment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z_]\w*)=(.*)$`) })
	mounted    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([a-z0-9-]+):(/\S*)$`) })
	lostColon  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z]+):?\s*(\S+)$`) })
)

// spelledOut returns the long form of a value in short form.
func spelledOut(v any, t reflect.Type, path string) string {
	text := fmt.Sprint(v)
	if _, isString := v.(string); !isString && !isScalar(v) {
		return ""
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String {
		return "write it as a list: " + listOf(text, path)
	}
	if t.Kind() == reflect.Int64 && strings.Contains(path, "ecurityContext.") {
		return "use its numeric id: names of users and groups are only known inside the image"
	}
	forms := map[reflect.Type][]struct {
		from *regexp.Regexp
		to   string
	}{
		reflect.TypeFor[corev1.ContainerPort]():                     {{plainPort(), "{containerPort: $1}"}, {mappedPort(), "{hostPort: $1, containerPort: $2}"}},
		reflect.TypeFor[corev1.EnvVar]():                            {{assignment(), `{name: $1, value: "$2"}`}},
		reflect.TypeFor[corev1.VolumeMount]():                       {{mounted(), "{name: $1, mountPath: $2}"}},
		reflect.TypeFor[corev1.HostPathVolumeSource]():              {{word(), "{path: $0}"}},
		reflect.TypeFor[corev1.ConfigMapVolumeSource]():             {{word(), "{name: $0}"}},
		reflect.TypeFor[corev1.SecretVolumeSource]():                {{word(), "{secretName: $0}"}},
		reflect.TypeFor[corev1.PersistentVolumeClaimVolumeSource](): {{word(), "{claimName: $0}"}},
		reflect.TypeFor[corev1.LocalObjectReference]():              {{word(), "{name: $0}"}},
	}
	for _, f := range forms[t] {
		if f.from.MatchString(text) {
			return "write " + f.from.ReplaceAllString(text, f.to)
		}
	}
	if m := lostColon().FindStringSubmatch(text); t.Kind() == reflect.Struct && m != nil && schema.HasField(t, m[1]) {
		return fmt.Sprintf("separate the two with a colon and a space: %s: %s", m[1], m[2])
	}
	return ""
}

var word = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\S+$`) })

// listOf turns one string into a list of strings. A command with shell syntax becomes one of a shell.
func listOf(text, path string) string {
	words := []string{text}
	switch of := path[strings.LastIndexByte(path, '.')+1:]; {
	case of != "command" && of != "args":
	case of == "command" && strings.ContainsAny(text, "\"'`|&;<>()$*"):
		words = []string{"sh", "-c", text}
	default:
		words = strings.Fields(text)
	}
	for i := range words {
		words[i] = fmt.Sprintf("%q", words[i])
	}
	return "[" + strings.Join(words, ", ") + "]"
}

var (
	noSpace  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*(?:- )?[A-Za-z]\w*:[^\s:/]`) })
	noPair   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*[^\s#-]`) })
	twoPairs = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*(?:- )?[\w.-]+:\s+[^"'{\[|>\s].*: `) })
	special  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("[:\\-,{\\[]\\s+([@%`])") })
)

// syntaxAdvice returns the usual cause of a parser error, and the line it is in, counted from 0; at is the line that the parser reported.
func syntaxAdvice(msg string, lines []string, at int) (line int, advice string) {
	here := func(i int) string { return lines[min(max(i, 0), len(lines)-1)] }
	switch {
	case strings.HasPrefix(msg, "mapping values"):
		for _, i := range []int{at - 1, at} {
			if i >= 0 && noSpace().MatchString(here(i)) {
				return i, "add a space after the colon"
			}
		}
		if at > 0 && !strings.Contains(here(at-1), ":") && noPair().MatchString(here(at-1)) {
			return at - 1, `this line is not "key: value"`
		}
		if twoPairs().MatchString(here(at)) {
			return at, `put the value in quotes: it contains a colon and a space`
		}
		return at, "check the indentation: keys of one level start in the same column"
	case strings.HasPrefix(msg, "did not find expected key"), strings.Contains(msg, "expected '-' indicator"), strings.HasPrefix(msg, "could not find expected ':'"):
		return at, "check the indentation, here and in the next line: entries of one level start in the same column. Multi-line text follows key: |"
	case strings.HasPrefix(msg, "found character that cannot start"):
		for _, i := range []int{at, at - 1, at + 1} {
			if m := special().FindStringSubmatch(here(i)); m != nil && i == min(max(i, 0), len(lines)-1) {
				return i, fmt.Sprintf("put the value in quotes: it starts with %s", m[1])
			}
		}
	case strings.HasPrefix(msg, "found unexpected end of stream"):
		odd := func(l string) bool { return strings.Count(l, `"`)%2 == 1 || strings.Count(l, `'`)%2 == 1 }
		if i := slices.IndexFunc(lines, odd); i >= 0 {
			return i, "a quote that starts here is not closed"
		}
		return at, "a quote is not closed"
	case strings.Contains(msg, "expected ',' or"):
		return at, "a bracket is not closed, or a comma is missing"
	case strings.Contains(msg, "unknown escape character"):
		return at, "use single quotes: in double quotes a backslash is an escape character"
	}
	return at, ""
}

// newerPolicy reports whether a value is podman's policy to pull an image if the registry has a newer one.
func newerPolicy(value string) bool {
	return strings.EqualFold(value, "newer") || strings.EqualFold(value, "ifnewer")
}
