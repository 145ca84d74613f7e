package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/internal/regular"
)

const (
	providerConfigAPI  = "kubelet.config.k8s.io/v1"
	providerConfigKind = "CredentialProviderConfig"
	providerAPI        = "credentialprovider.kubelet.k8s.io/v1"
	providerRequest    = "CredentialProviderRequest"
	providerResponse   = "CredentialProviderResponse"
)

const (
	// providerTimeout is the timeout of a plug-in.
	providerTimeout = time.Minute
	// maxProviderOutput limits the output of a plug-in, in bytes.
	maxProviderOutput = 1 << 20
)

// providerConfig is the CredentialProviderConfig of a kubelet.
type providerConfig struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Providers  []provider `json:"providers"`
}

// provider is an entry of a providerConfig.
type provider struct {
	Name                 string           `json:"name"`
	MatchImages          []string         `json:"matchImages"`
	DefaultCacheDuration *metav1.Duration `json:"defaultCacheDuration"`
	APIVersion           string           `json:"apiVersion"`
	Args                 []string         `json:"args,omitempty"`
	Env                  []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env,omitempty"`
	// TokenAttributes are for plug-ins that need a service account token. Pods have none here.
	TokenAttributes *struct {
		ServiceAccountTokenAudience          string   `json:"serviceAccountTokenAudience"`
		CacheType                            string   `json:"cacheType"`
		RequireServiceAccount                *bool    `json:"requireServiceAccount"`
		RequiredServiceAccountAnnotationKeys []string `json:"requiredServiceAccountAnnotationKeys,omitempty"`
		OptionalServiceAccountAnnotationKeys []string `json:"optionalServiceAccountAnnotationKeys,omitempty"`
	} `json:"tokenAttributes,omitempty"`
}

// Providers are the credential provider plug-ins of a kubelet: programs that return logins when an image is pulled. Nil means none.
type Providers struct {
	file, binDir string
	log          *slog.Logger
	// run executes a plug-in.
	run func(ctx context.Context, p *provider, repository string) (*providerAnswer, error)

	mu sync.Mutex
	// queues serialize the calls of each plug-in, by its name.
	queues map[string]*queue
	Cache  map[CacheKey]CachedLogins
	// lastError is the last error of reading the file.
	lastError string
}

// queue serializes the calls of a plug-in, so that concurrent pulls use one answer.
type queue struct {
	// busy is full during a call.
	busy chan struct{}
	// timedOut is when the last call timed out. It is guarded by busy.
	timedOut time.Time
}

// CacheKey is the scope of cached logins: an image, a registry or all images of a plug-in.
type CacheKey struct{ provider, kind, of string }

// CachedLogins are logins that a plug-in returned, and their expiry.
type CachedLogins struct {
	logins []Login
	until  time.Time
}

// NewProviders returns the plug-ins of a CredentialProviderConfig file, with programs in binDir; nil without a file. It does no I/O.
func NewProviders(file, binDir string, log *slog.Logger) *Providers {
	if file == "" {
		return nil
	}
	ps := &Providers{file: file, binDir: binDir, log: log, queues: map[string]*queue{}, Cache: map[CacheKey]CachedLogins{}}
	ps.run = ps.execute
	return ps
}

// CheckProviders validates the file and its plug-ins. Missing programs are returned separately, because they may be installed later.
func CheckProviders(file, binDir string) (wrong, missing error) {
	conf, err := readProviders(file)
	if err != nil {
		return err, nil
	}
	var bad, absent []error
	for i := range conf.Providers {
		path := filepath.Join(binDir, conf.Providers[i].Name)
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			absent = append(absent, fmt.Errorf("credential provider %s: %w", conf.Providers[i].Name, err))
		case err != nil:
			bad = append(bad, fmt.Errorf("credential provider %s: %w", conf.Providers[i].Name, err))
		case info.Mode()&0o111 == 0 || !info.Mode().IsRegular():
			bad = append(bad, fmt.Errorf("credential provider %s: %s is not a program", conf.Providers[i].Name, path))
		}
	}
	return errors.Join(bad...), errors.Join(absent...)
}

func readProviders(file string) (*providerConfig, error) {
	b, err := regular.ReadFile(file, maxConfigFile)
	if err != nil {
		return nil, fmt.Errorf("credential providers: %w", err)
	}
	conf := &providerConfig{}
	if err := yaml.UnmarshalStrict(b, conf); err != nil {
		return nil, fmt.Errorf("credential providers %s: %w", file, err)
	}
	if conf.Kind != providerConfigKind || !isVersionOf(conf.APIVersion, providerConfigAPI) {
		return nil, fmt.Errorf("credential providers %s: it is a %s of %s, not a %s of %s", file, cmp.Or(conf.Kind, "document without kind"), cmp.Or(conf.APIVersion, "no apiVersion"), providerConfigKind, providerConfigAPI)
	}
	seen := map[string]bool{}
	var errs []error
	for i := range conf.Providers {
		p := &conf.Providers[i]
		if err := p.check(); err != nil {
			errs = append(errs, fmt.Errorf("credential providers %s: providers[%d]: %w", file, i, err))
		}
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("credential providers %s: providers[%d]: %s is listed twice", file, i, p.Name))
		}
		seen[p.Name] = true
	}
	return conf, errors.Join(errs...)
}

// isVersionOf reports whether a version is v1, v1beta1 or v1alpha1 of an API. All have the same fields.
func isVersionOf(version, v1 string) bool {
	return version == v1 || version == v1+"beta1" || version == v1+"alpha1"
}

func (p *provider) check() error {
	switch {
	case p.Name == "" || strings.ContainsAny(p.Name, "/ ") || p.Name == "." || p.Name == "..":
		return fmt.Errorf("%q is not the name of a program", p.Name)
	case len(p.MatchImages) == 0:
		return errors.New("matchImages is missing")
	case p.DefaultCacheDuration == nil || p.DefaultCacheDuration.Duration < 0:
		return errors.New("defaultCacheDuration is missing, or less than 0s")
	case !isVersionOf(p.APIVersion, providerAPI):
		return fmt.Errorf("apiVersion %q is not %s", p.APIVersion, providerAPI)
	}
	return nil
}

// Logins calls the plug-ins that match an image, a normalised name, and returns the logins of those that succeed together with the errors of the
// others. When ctx ends it returns its cause.
func (ps *Providers) Logins(ctx context.Context, name string) ([]Login, error) {
	if ps == nil {
		return nil, nil
	}
	conf, err := readProviders(ps.file)
	ps.report(err)
	if err != nil {
		return nil, err
	}
	repository := name
	if named, err := reference.ParseNormalizedNamed(name); err == nil {
		repository = reference.TrimNamed(named).String()
	}
	var all []Login
	var errs []error
	for i := range conf.Providers {
		p := &conf.Providers[i]
		if !p.isFor(repository) {
			continue
		}
		logins, err := ps.ask(ctx, p, repository)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("credential provider %s: %w", p.Name, err))
			ps.log.Warn("no credentials of a provider", "provider", p.Name, "image", repository, "err", err)
		}
		all = append(all, logins...)
	}
	return all, errors.Join(errs...)
}

// report logs an error of the file once, and its end: a pull that succeeds without plug-ins would not mention it.
func (ps *Providers) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch {
	case text == ps.lastError:
	case err != nil:
		ps.log.Warn("credential providers are disabled", "err", err)
	default:
		ps.log.Info("credential providers are enabled again", "file", ps.file)
	}
	ps.lastError = text
}

// isFor reports whether a plug-in is used for an image.
func (p *provider) isFor(repository string) bool {
	if t := p.TokenAttributes; t != nil && t.RequireServiceAccount != nil && *t.RequireServiceAccount {
		return false // like a kubelet for static pods
	}
	return slices.ContainsFunc(p.MatchImages, func(pattern string) bool { return Login{Pattern: patternOf(pattern)}.matches(repository) })
}

// errTimeout reports that a plug-in timed out.
var errTimeout = fmt.Errorf("no answer for %s", providerTimeout)

// ask returns the logins of a plug-in, from the cache if possible. A caller that waited while another call timed out does not call the plug-in
// again.
func (ps *Providers) ask(ctx context.Context, p *provider, repository string) ([]Login, error) {
	q, began := ps.queueOf(p.Name), time.Now()
	select {
	case q.busy <- struct{}{}:
		defer func() { <-q.busy }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	host, _, _ := strings.Cut(repository, "/")
	keys := map[string]CacheKey{"Image": {p.Name, "Image", repository}, "Registry": {p.Name, "Registry", host}, "Global": {p.Name, "Global", ""}}
	if logins, ok := ps.cached(keys); ok {
		return logins, nil
	}
	if q.timedOut.After(began) {
		return nil, errTimeout
	}
	answer, err := ps.run(ctx, p, repository)
	if errors.Is(err, errTimeout) {
		q.timedOut = time.Now()
	}
	if err != nil {
		return nil, err
	}
	key, ok := keys[answer.CacheKeyType]
	if !ok {
		return nil, fmt.Errorf("its answer has the cacheKeyType %q, not Image, Registry or Global", answer.CacheKeyType)
	}
	logins := make([]Login, 0, len(answer.Auth))
	for pattern, a := range answer.Auth {
		logins = append(logins, Login{Pattern: patternOf(pattern), User: a.Username, Password: a.Password})
	}
	slices.SortFunc(logins, func(a, b Login) int { return compareLogins(&a, &b) })
	keep := p.DefaultCacheDuration.Duration
	if answer.CacheDuration != nil {
		keep = answer.CacheDuration.Duration
	}
	if keep > 0 {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.Cache[key] = CachedLogins{logins, time.Now().Add(keep)}
	}
	return logins, nil
}

func (ps *Providers) queueOf(name string) *queue {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.queues[name] == nil {
		ps.queues[name] = &queue{busy: make(chan struct{}, 1)}
	}
	return ps.queues[name]
}

// cached returns cached logins, and removes expired ones.
func (ps *Providers) cached(keys map[string]CacheKey) ([]Login, bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for key, c := range ps.Cache {
		if !time.Now().Before(c.until) {
			delete(ps.Cache, key)
		}
	}
	for _, key := range keys {
		if c, ok := ps.Cache[key]; ok {
			return c.logins, true
		}
	}
	return nil, false
}

// providerAnswer is a CredentialProviderResponse.
type providerAnswer struct {
	metav1.TypeMeta
	CacheKeyType  string           `json:"cacheKeyType"`
	CacheDuration *metav1.Duration `json:"cacheDuration"`
	Auth          map[string]struct {
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"auth"`
}

// execute runs a plug-in. Its errors do not contain the output, which has secrets.
func (ps *Providers) execute(ctx context.Context, p *provider, repository string) (*providerAnswer, error) {
	request, err := json.Marshal(map[string]string{"kind": providerRequest, "apiVersion": p.APIVersion, "image": repository})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, providerTimeout, errTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(ps.binDir, p.Name), p.Args...)
	cmd.Env = os.Environ()
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	stdout, stderr := limitedBuffer{left: maxProviderOutput}, limitedBuffer{left: 4 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(request), &stdout, &stderr, time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.b.String()))
	}
	answer := &providerAnswer{}
	if err := json.Unmarshal(stdout.b.Bytes(), answer); err != nil {
		return nil, errors.New("its answer is not JSON")
	}
	if answer.APIVersion != p.APIVersion || answer.Kind != providerResponse {
		return nil, fmt.Errorf("its answer is a %q of %q, not a %s of %s", answer.Kind, answer.APIVersion, providerResponse, p.APIVersion)
	}
	return answer, nil
}

// limitedBuffer keeps the first bytes of its input.
type limitedBuffer struct {
	b    bytes.Buffer
	left int
}

// Write implements io.Writer.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	l.b.Write(p[:n])
	return len(p), nil
}
