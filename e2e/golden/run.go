package golden

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"
)

// Server is one of the compared servers.
type Server struct {
	// Name is the name in Step.Only.
	Name string
	// URL is the base URL, without a path.
	URL    string
	Client *http.Client

	saved map[string]any
}

// Answer is the response of a server to a step.
type Answer struct {
	Code   int
	Header map[string]any
	// Body is JSON, whatever the encoding of the response; watch events are a list.
	Body any
}

// patience is the timeout of a request, eventTime that of the events of a watch.
const (
	patience  = 20 * time.Second
	eventTime = 4 * time.Second
)

// types resolves short names of media types.
func types(name string) string {
	switch name {
	case "", "json":
		return "application/json"
	case "yaml":
		return "application/yaml"
	case "protobuf":
		return "application/vnd.kubernetes.protobuf"
	case "merge", "strategic":
		return "application/" + strings.Replace(name, "strategic", "strategic-merge", 1) + "-patch+json"
	case "jsonpatch":
		return "application/json-patch+json"
	case "apply":
		return "application/apply-patch+yaml"
	case "Table", "PartialObjectMetadata", "PartialObjectMetadataList":
		return "application/json;as=" + name + ";v=v1;g=meta.k8s.io"
	}
	return name
}

// Run sends a step and returns the response, nil if the step is not for this server.
func (s *Server) Run(ctx context.Context, step *Step) (*Answer, error) {
	if step.Only != "" && step.Only != s.Name {
		return nil, nil
	}
	for end := time.Now().Add(patience); ; {
		a, err := s.once(ctx, step)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.Name, step.Name, err)
		}
		if !step.Until || a.Code == step.Code || time.Now().After(end) {
			if step.Save != "" {
				s.saved[step.Save] = a.Body
			}
			return a, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *Server) once(ctx context.Context, step *Step) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.saved == nil {
		s.saved = map[string]any{}
	}
	line, err := s.fill(step.Do)
	if err != nil {
		return nil, err
	}
	method, path, _ := strings.Cut(line, " ")
	body, err := s.body(step)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "golden/1")
	req.Header.Set("Accept", types(step.As))
	if len(body) > 0 || step.Type != "" {
		req.Header.Set("Content-Type", types(step.Type))
	}
	res, err := s.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a := &Answer{Code: res.StatusCode, Header: map[string]any{}}
	for _, name := range []string{"Content-Type", "Retry-After", "Cache-Control"} {
		if value := res.Header.Get(name); value != "" {
			a.Header[name] = value
		}
	}
	if warnings := res.Header.Values("Warning"); len(warnings) > 0 {
		var list []any
		for _, w := range warnings {
			list = append(list, w)
		}
		a.Header["Warning"] = list
	}
	if step.Watch > 0 && res.StatusCode == http.StatusOK {
		a.Body, err = events(res.Body, res.Header.Get("Content-Type"), step.Watch, cancel)
		return a, err
	}
	text, err := io.ReadAll(res.Body)
	if err == nil {
		a.Body, err = decode(text, res.Header.Get("Content-Type"))
	}
	return a, err
}

var reference = regexp.MustCompile(`\$\{(\w+):([\w.\[\]/-]+)\}`)

// fill replaces references to saved responses.
func (s *Server) fill(text string) (string, error) {
	var wrong error
	filled := reference.ReplaceAllStringFunc(text, func(one string) string {
		m := reference.FindStringSubmatch(one)
		value, err := lookUp(s.saved[m[1]], m[2])
		if err != nil {
			wrong = fmt.Errorf("%s: %w in %v", one, err, s.saved[m[1]])
		}
		return fmt.Sprint(value)
	})
	return filled, wrong
}

func lookUp(value any, path string) (any, error) {
	for name := range strings.SplitSeq(path, ".") {
		at, index := name, -1
		if before, in, ok := strings.Cut(name, "["); ok {
			at = before
			if _, err := fmt.Sscanf(in, "%d]", &index); err != nil {
				return nil, err
			}
		}
		m, _ := value.(map[string]any)
		if value = m[at]; index >= 0 {
			list, _ := value.([]any)
			if index >= len(list) {
				return nil, errors.New("no element " + name)
			}
			value = list[index]
		}
	}
	if value == nil {
		return nil, errors.New("no field " + path)
	}
	return value, nil
}

// body returns the request body.
func (s *Server) body(step *Step) ([]byte, error) {
	if len(step.Body) == 0 || string(step.Body) == "null" {
		return nil, nil
	}
	text := string(step.Body)
	if text[0] == '"' {
		if err := json.Unmarshal(step.Body, &text); err != nil {
			return nil, err
		}
	}
	text, err := s.fill(text)
	if err != nil || step.Type != "protobuf" {
		return []byte(text), err
	}
	o, _, err := codecs().UniversalDeserializer().Decode([]byte(text), nil, nil)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = protobuf.NewSerializer(allTypes(), allTypes()).Encode(o, &out)
	return out.Bytes(), err
}

var allTypes = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		metav1.AddMetaToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, autoscalingv1.AddToScheme, batchv1.AddToScheme, coordinationv1.AddToScheme,
		corev1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme, nodev1.AddToScheme, policyv1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
})

var codecs = sync.OnceValue(func() serializer.CodecFactory { return serializer.NewCodecFactory(allTypes()) })

// decode returns a body as JSON.
func decode(text []byte, contentType string) (any, error) {
	media, _, _ := strings.Cut(contentType, ";")
	switch {
	case len(text) == 0:
		return nil, nil
	case media == "application/vnd.kubernetes.protobuf":
		o, gvk, err := codecs().UniversalDeserializer().Decode(text, &schema.GroupVersionKind{Version: "v1"}, nil) // discovery documents have none
		if err != nil {
			return nil, err
		}
		o.GetObjectKind().SetGroupVersionKind(*gvk)
		if text, err = json.Marshal(o); err != nil {
			return nil, err
		}
	case media == "application/yaml":
		var err error
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return nil, err
		}
	case media != "application/json" && !strings.HasSuffix(media, "+json"):
		return strings.TrimSpace(string(text)), nil
	}
	var body any
	err := json.Unmarshal(text, &body)
	return body, err
}

// events reads up to the given number of watch events, or those that arrive in time.
func events(from io.Reader, contentType string, most int, cancel func()) (any, error) {
	timer := time.AfterFunc(eventTime, cancel)
	defer timer.Stop()
	all := []any{}
	isProtobuf := strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf")
	stream := json.NewDecoder(from)
	for len(all) < most {
		var e any
		var err error
		if isProtobuf {
			e, err = frame(from)
		} else {
			err = stream.Decode(&e)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// frame reads one event of a watch in protobuf.
func frame(from io.Reader) (any, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(from, b); err != nil {
		return nil, err
	}
	var e metav1.WatchEvent
	if err := e.Unmarshal(b); err != nil {
		return nil, err
	}
	object, err := decode(e.Object.Raw, "application/vnd.kubernetes.protobuf")
	return map[string]any{"type": e.Type, "object": object}, err
}
