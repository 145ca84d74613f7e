package config

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/internal/quantity"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
	"monopod/runner/ctrd/image/registry"
	"monopod/watcher"
	"monopod/watcher/fetch"
)

// RemoteSource is an entry of `sources`. Its keys are described in remoteSourceKeys.
type RemoteSource struct {
	Name        string         `koanf:"name"`
	URL         string         `koanf:"url"`
	Headers     []SourceHeader `koanf:"headers"`
	CAFile      string         `koanf:"caFile"`
	CertFile    string         `koanf:"certFile"`
	KeyFile     string         `koanf:"keyFile"`
	Period      time.Duration  `koanf:"period"`
	Timeout     time.Duration  `koanf:"timeout"`
	MaxSize     string         `koanf:"maxSize"`
	Atomic      bool           `koanf:"atomic"`
	PodSecurity string         `koanf:"podSecurity"`
	// CriticalPods is the permission to use the system-* priority classes and to be protected from eviction.
	CriticalPods bool `koanf:"criticalPods"`

	Signature SourceSignature `koanf:"signature"`
}

// SourceHeader is a header of the requests of a source.
type SourceHeader struct {
	Name  string `koanf:"name"`
	Value string `koanf:"value"`
	// ValueFile is read at each request; its content is appended to Value.
	ValueFile string `koanf:"valueFile"`
}

// Defaults of an entry of `sources`.
const (
	defaultSourceTimeout = 30 * time.Second
	defaultSourceSize    = "10Mi"
)

// remoteSourceKeys are the keys of an entry of `sources`.
func remoteSourceKeys() []Key {
	return append([]Key{
		{Path: "name", Kind: kindString, derived: required, doc: "Name of the source, in lower-case letters, digits and -. It is shown as the source of its pods and names its cache directory."},
		{Path: "url", Kind: kindString, derived: required, doc: "An `http` or `https` URL, or `oci://REGISTRY/REPOSITORY:TAG`: an artifact whose layers are manifests or tars of them. Registries are accessed as for images, with the credentials of `registryConfig`; nothing is downloaded while the digest is unchanged. Proxies come from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`)."},
		{Path: "headers", Kind: kindSourceHeaders, doc: "Headers of each request: a list of `name` with `value`, `valueFile` or both. A `valueFile` is read at each request, and its content is appended to `value`: `{name: Authorization, value: \"Bearer \", valueFile: /etc/monopod/token}`."},
		{Path: "caFile", Kind: kindPath, derived: "the CA certificates of the system", doc: "PEM file with trusted CA certificates, instead of those of the system. Like `certFile` and `keyFile`, it may change at any time."},
		{Path: "certFile", Kind: kindPath, doc: "PEM file with the client certificate."},
		{Path: "keyFile", Kind: kindPath, doc: "PEM file with the key of `certFile`."},
		{Path: "period", Kind: kindDuration, derived: "`httpCheckFrequency`", doc: "Interval between two requests, with a jitter of a tenth; after a failure, retries start at one second and double up to this interval."},
		{Path: "timeout", Kind: kindDuration, def: defaultSourceTimeout, doc: "Timeout of a request including its answer. An answer that makes no progress for 10s is aborted earlier."},
		{Path: "maxSize", Kind: kindString, def: defaultSourceSize, doc: "Maximum size of an answer, uncompressed; at most `10Mi`."},
		{Path: "atomic", Kind: kindBool, def: false, doc: "Whether an answer with an error is refused as a whole. Otherwise its valid objects are used, and the others keep their last good content."},
		{Path: "podSecurity", Kind: kindString, derived: "`podSecurity` of the configuration", doc: "Pod Security Standard for the pods of the source."},
		{Path: "criticalPods", Kind: kindBool, def: false, doc: "Whether pods of the source may be critical: have `priorityClassName: system-node-critical` or `system-cluster-critical`, a `priority` above 1000000000, or the annotation `monopod.dev/protected`. Otherwise such pods are refused, and so are a PriorityClass with `globalDefault: true` and a default StorageClass, because they apply to pods and claims of all sources."},
	}, sourceSignatureKeys()...)
}

func sourceHeaderKeys() []Key {
	return []Key{
		{Path: "name", Kind: kindString, doc: "Name of the header, as `Authorization`."},
		{Path: "value", Kind: kindString, secret: true, doc: "Value of the header; it is a secret."},
		{Path: "valueFile", Kind: kindPath, doc: "File whose content is appended to the value."},
	}
}

// entryProblem is a problem in a list of maps, with its line.
type entryProblem struct {
	Problem
	line int
}

// mapList reads a list of maps with the given keys. name is the name of the list in messages.
func mapList(name string, keys []Key, n *yaml.Node) ([]any, []entryProblem) {
	if n.Kind != yaml.SequenceNode {
		return nil, []entryProblem{{Problem{Key: name, Msg: "expected a list of maps, not " + describeKind(n)}, n.Line}}
	}
	out, problems := []any{}, []entryProblem(nil)
	for i, item := range n.Content {
		entry, found := mapEntry(fmt.Sprintf("%s[%d]", name, i), keys, resolveAlias(item))
		out, problems = append(out, entry), append(problems, found...)
	}
	return out, problems
}

func mapEntry(name string, keys []Key, n *yaml.Node) (map[string]any, []entryProblem) {
	if n.Kind != yaml.MappingNode {
		return nil, []entryProblem{{Problem{Key: name, Msg: "expected a map, not " + describeKind(n)}, n.Line}}
	}
	out, problems := map[string]any{}, []entryProblem(nil)
	bad := func(key string, n *yaml.Node, p Problem) {
		p.Key = name + "." + key
		problems = append(problems, entryProblem{p, n.Line})
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		at, val := n.Content[i], resolveAlias(n.Content[i+1])
		k := slices.IndexFunc(keys, func(k Key) bool { return k.Path == at.Value && !strings.Contains(k.Path, ".") })
		section := subKeys(keys, at.Value)
		switch {
		case seen[at.Value]:
			bad(at.Value, at, Problem{Msg: "given twice"})
		case k < 0 && len(section) == 0:
			bad(at.Value, at, Problem{Msg: "unknown key", Hint: DidYouMean(at.Value, pathsOf(keys))})
		case isNull(val):
		case k < 0:
			m, found := mapEntry(name+"."+at.Value, section, val)
			if len(m)+len(found) == 0 {
				bad(at.Value, val, Problem{Msg: "is empty", Hint: "its keys: " + strings.Join(pathsOf(section), ", ")})
			}
			out[at.Value], problems = m, append(problems, found...)
		case keys[k].Kind == kindSourceHeaders:
			list, found := mapList(name+".headers", sourceHeaderKeys(), val)
			out[at.Value], problems = list, append(problems, found...)
		case keys[k].secret && val.Tag != "!!str":
			bad(at.Value, val, Problem{Msg: "expected a string, not " + describeKind(val), Hint: "quote it"})
		default:
			value, problem := valueOf(keys[k], val)
			if problem != nil {
				bad(at.Value, val, *problem)
				continue
			}
			if value == time.Duration(0) { // it would count as not given
				bad(at.Value, val, Problem{Msg: "0s is less than 1s"})
			}
			out[at.Value] = value
		}
		seen[at.Value] = true
	}
	return out, problems
}

func pathsOf(keys []Key) []string {
	var out []string
	for _, k := range keys {
		out = append(out, k.Path)
	}
	return out
}

// resolveSourcePaths makes the paths of entries absolute.
func resolveSourcePaths(keys []Key, list []any, base string) {
	for _, item := range list {
		entry, ok := item.(map[string]any)
		if !ok {
			continue
		}
		for _, key := range keys {
			section, rest, nested := strings.Cut(key.Path, ".")
			if inner, ok := entry[section].(map[string]any); ok && nested && inner[rest] != nil {
				inner[rest] = resolvePaths(key, inner[rest], base)
			}
			switch v := entry[key.Path].(type) {
			case nil:
			case []any:
				resolveSourcePaths(sourceHeaderKeys(), v, base)
			default:
				entry[key.Path] = resolvePaths(key, v, base)
			}
		}
	}
}

// deriveSources sets defaults in entries of `sources`.
func (c *Config) deriveSources() {
	for i := range c.RemoteSources {
		s := &c.RemoteSources[i]
		if s.Period == 0 {
			s.Period = c.HTTPCheckFrequency
		}
		if s.Timeout == 0 {
			s.Timeout = defaultSourceTimeout
		}
		if s.MaxSize == "" {
			s.MaxSize = defaultSourceSize
		}
		if s.PodSecurity == "" {
			s.PodSecurity = c.PodSecurity
		}
	}
}

// builtInSources returns the names of sources that need no entry.
func builtInSources() []string {
	return []string{SourceFile, SourceHTTP, SourceApplied, SourceAPIServer}
}

func (c *configCheck) remoteSources(cfg *Config) {
	seen := map[string]bool{}
	for i := range cfg.RemoteSources {
		s := &cfg.RemoteSources[i]
		bad := func(key, msg, hint string) {
			c.problems = append(c.problems, Problem{Where: c.sources["sources"], Key: fmt.Sprintf("sources[%d].%s", i, key), Msg: msg, Hint: hint})
		}
		switch {
		case s.Name == "":
			bad("name", "is missing", "give the source a name")
		case len(validation.IsDNS1123Label(s.Name)) > 0:
			bad("name", fmt.Sprintf("%q is not a source name", s.Name), "use lower-case letters, digits and -")
		case slices.Contains(builtInSources(), s.Name):
			bad("name", s.Name+" is the name of a built-in source", "choose another one")
		case seen[s.Name]:
			bad("name", s.Name+" is already the name of an earlier source", "choose another one")
		}
		seen[s.Name] = true
		checkRemoteSource(s, cfg, bad)
	}
}

// checkRemoteSource checks an entry, except its name.
func checkRemoteSource(s *RemoteSource, cfg *Config, bad func(key, msg, hint string)) {
	s.checkURL(bad)
	s.Signature.check(bad)
	if (s.CertFile == "") != (s.KeyFile == "") {
		bad("certFile", "certFile and keyFile belong together", "set both or none")
	}
	for _, h := range s.Headers {
		if len(validation.IsHTTPHeaderName(h.Name)) > 0 {
			bad("headers", fmt.Sprintf("%q is not a header name", beforeColon(h.Name)), "")
		}
		if strings.ContainsAny(h.Value, "\r\n\x00") {
			bad("headers", fmt.Sprintf("the value of %s has a line break", beforeColon(h.Name)), "")
		}
		if h.Value == "" && h.ValueFile == "" {
			bad("headers", beforeColon(h.Name)+" has neither value nor valueFile", "")
		}
	}
	if s.Period < time.Second || s.Period > 24*time.Hour {
		bad("period", DurationText(s.Period)+" is not between 1s and 24h", "")
	}
	if s.Timeout < time.Second || s.Timeout > time.Hour {
		bad("timeout", DurationText(s.Timeout)+" is not between 1s and 1h", "")
	}
	if n := s.MaxBytes(); n < 1 || n > watcher.MaxInput {
		bad("maxSize", fmt.Sprintf("%q is not a size up to 10Mi", s.MaxSize), "write it as 512Ki or 10Mi")
	}
	if s.PodSecurity != cfg.PodSecurity && !slices.Contains(policy.PodSecurityLevels(), s.PodSecurity) {
		bad("podSecurity", fmt.Sprintf("%q is none of %s", s.PodSecurity, strings.Join(policy.PodSecurityLevels(), ", ")), DidYouMean(s.PodSecurity, policy.PodSecurityLevels()))
	}
}

// beforeColon returns the part of an invalid header name that may be shown: a mistaken entry may contain the secret value after a colon.
func beforeColon(name string) string {
	name, _, _ = strings.Cut(name, ":")
	return name
}

func (s *RemoteSource) checkURL(bad func(key, msg, hint string)) {
	u, err := url.Parse(s.URL)
	switch ref, oci := OciReference(s.URL); {
	case s.URL == "":
		bad("url", "is missing", "write the http, https or oci URL of the manifests")
	case oci:
		s.checkOCI(ref, bad)
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		bad("url", fmt.Sprintf("%q is not an http, https or oci URL", fetch.RedactURL(s.URL)), "")
	}
}

// MaxBytes returns MaxSize as a number; 0 if it is invalid.
func (s *RemoteSource) MaxBytes() int {
	q, err := quantity.Parse(s.MaxSize)
	if err != nil {
		return 0
	}
	return int(q.Value())
}

// printedSource is a RemoteSource as it is printed: with the keys of a file, without secrets.
type printedSource struct {
	Name         string          `json:"name"                yaml:"name"`
	URL          string          `json:"url"                 yaml:"url"`
	Headers      []printedHeader `json:"headers,omitempty"   yaml:"headers,omitempty"`
	CAFile       string          `json:"caFile,omitempty"    yaml:"caFile,omitempty"`
	CertFile     string          `json:"certFile,omitempty"  yaml:"certFile,omitempty"`
	KeyFile      string          `json:"keyFile,omitempty"   yaml:"keyFile,omitempty"`
	Period       string          `json:"period"              yaml:"period"`
	Timeout      string          `json:"timeout"             yaml:"timeout"`
	MaxSize      string          `json:"maxSize"             yaml:"maxSize"`
	Atomic       bool            `json:"atomic"              yaml:"atomic"`
	PodSecurity  string          `json:"podSecurity"         yaml:"podSecurity"`
	CriticalPods bool            `json:"criticalPods"        yaml:"criticalPods"`

	Signature *SourceSignature `json:"signature,omitempty" yaml:"signature,omitempty"`
}

type printedHeader struct {
	Name      string `json:"name"                yaml:"name"`
	Value     string `json:"value,omitempty"     yaml:"value,omitempty"`
	ValueFile string `json:"valueFile,omitempty" yaml:"valueFile,omitempty"`
}

// printedSources returns the entries of `sources` for printing.
func (c *Config) printedSources() []printedSource {
	out := []printedSource{}
	for _, s := range c.RemoteSources {
		p := printedSource{
			Name: s.Name, URL: fetch.RedactURL(s.URL), CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile,
			Period: DurationText(s.Period), Timeout: DurationText(s.Timeout), MaxSize: s.MaxSize, Atomic: s.Atomic, PodSecurity: s.PodSecurity, CriticalPods: s.CriticalPods,
		}
		if s.Signature.Kind != "" {
			p.Signature = &s.Signature
		}
		for _, h := range s.Headers {
			ph := printedHeader{Name: h.Name, ValueFile: h.ValueFile}
			if h.Value != "" {
				ph.Value = secretValue
			}
			p.Headers = append(p.Headers, ph)
		}
		out = append(out, p)
	}
	return out
}

// CopiesDirectory contains the cached answers of remote sources, one directory each.
func (c *Config) CopiesDirectory() string { return filepath.Join(c.RootDirectory, "sources") }

// CopyOf returns the cache of a source.
func (c *Config) CopyOf(source string) *fetch.Copy {
	return fetch.NewCopy(filepath.Join(c.CopiesDirectory(), source))
}

const ociScheme = "oci"

// OciReference returns the reference in the URL of an OCI source.
func OciReference(address string) (string, bool) { return strings.CutPrefix(address, ociScheme+"://") }

// checkOCI checks an entry whose URL begins with oci://.
func (s *RemoteSource) checkOCI(ref string, bad func(key, msg, hint string)) {
	if err := registry.CheckArtifact(ref); err != nil {
		bad("url", err.Error(), "write it as oci://registry.example/repository:tag; credentials belong to registryConfig")
	}
	for _, of := range []struct {
		key   string
		given bool
	}{{"headers", len(s.Headers) > 0}, {"caFile", s.CAFile != ""}, {"certFile", s.CertFile != ""}, {"keyFile", s.KeyFile != ""}} {
		if of.given {
			bad(of.key, "is for http and https URLs only", "registries are accessed as for images; their credentials belong to registryConfig")
		}
	}
}

// Remotes returns the entries of `sources`, and staticPodURL as one more.
func (c *Config) Remotes() []RemoteSource {
	all := slices.Clone(c.RemoteSources)
	if c.StaticPodURL != "" {
		all = append(all, RemoteSource{Name: SourceHTTP, URL: c.StaticPodURL, PodSecurity: c.StaticPodURLSecurity, CriticalPods: c.StaticPodURLCriticalPods})
	}
	return all
}

// Stored returns the content of the cached answer of a source. It returns an error without content if the cache cannot be used.
func (c *Loaded) Stored(ctx context.Context, s *RemoteSource, input string) (*manifests.Content, error) {
	k, err := c.CopyOf(s.Name).Load()
	if err != nil {
		return nil, err
	}
	text := k.Counts
	if text == nil {
		text = k.Body
		if verify, _ := s.Signature.Verification(); verify != nil {
			if text, _, err = verify(ctx, k.Body, k.Signature); err != nil {
				return nil, fmt.Errorf("the cached answer is not used: %w", err)
			}
		}
	}
	content, err := decode.Parts(input, text, decode.Options{Source: s.Name, Policy: c.Policy(s.Name)})
	if content == nil {
		return nil, err
	}
	return content, nil
}
