// Package apiaccess gives pods access to the Kubernetes API of this machine: it issues their tokens, determines the API address for each
// pod, and verifies tokens against existing pods and service accounts.
//
// It must not authorize users, which node/kubeapi/access does, nor decide which pods get a token: their manifests do.
//
// Goroutines: those of Run, which waits for them.
package apiaccess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/manifests"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/authority"
	"monopod/node/kubeapi/tokens"
	"monopod/runner/podstatus"
	"monopod/runner/spec"
)

// Config of an Access.
type Config struct {
	// Address is the address of the API listener; empty if there is none.
	Address string
	// Issuer signs the tokens.
	Issuer *tokens.Issuer
	// Gateways returns the addresses of this machine on the pod network; nil, or an empty result, means that monopod does not own the
	// network.
	Gateways func() ([]netip.Prefix, error)
	// Service returns the address of the API's Service; invalid if there is none. It may be nil.
	Service func() netip.AddrPort
	// Wanted is called when the first pod needs the API. It may be nil.
	Wanted func()
	// RootCA returns the certificates of the API in PEM.
	RootCA func() string
	// Pods returns the pods; complete is false while more pods may exist.
	Pods func() (pods []podstatus.Status, complete bool)
	// Account returns a service account that a client created, nil if none has that name.
	Account func(namespace, name string) *corev1.ServiceAccount
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Access implements spec.API and access.AudienceTokens. Its methods may be called concurrently.
type Access struct {
	cfg Config
	// wanted is closed when the first pod needs the API.
	wanted chan struct{}
	want   func()

	mu sync.Mutex
	// issued caches the tokens of pods.
	issued map[request]issuedToken
}

// request is the key of an issued token.
type request struct {
	uid, account, audience string
	seconds                int64
}

// issuedToken is a cached token.
type issuedToken struct {
	token string
	at    time.Time
	life  time.Duration
}

// New returns an Access. It does no I/O.
func New(cfg Config) *Access {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &Access{cfg: cfg, wanted: make(chan struct{}), issued: map[request]issuedToken{}}
	a.want = sync.OnceFunc(func() {
		close(a.wanted)
		if cfg.Wanted != nil {
			cfg.Wanted()
		}
	})
	return a
}

var (
	_ spec.API                     = (*Access)(nil)
	_ access.AudienceAuthenticator = (*Access)(nil)
)

// errOff is the error of pods that need the API while it is disabled.
var errOff = errors.New("the pod uses the Kubernetes API of this machine (annotation " + manifests.AnnotationAPIAccess +
	"), which is disabled; set apiServer.address in the configuration, or remove the annotation")

// Behind returns the backend addresses of the API's Service; none if no pod uses it.
func (a *Access) Behind() []netip.AddrPort {
	select {
	case <-a.wanted:
	default:
		return nil
	}
	host, port, err := a.direct(false)
	if err != nil {
		return nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil
	}
	var all []netip.AddrPort
	for _, gateway := range a.gateways() {
		all = append(all, netip.AddrPortFrom(gateway, uint16(number)))
	}
	if len(all) > 0 && all[0].Addr().String() == host {
		return all
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip, uint16(number))}
	}
	return nil // a name
}

// reach returns the API address for a pod. The error says what to do.
func (a *Access) reach(pod *corev1.Pod) (host, port string, err error) {
	if host, port, err = a.direct(pod.Spec.HostNetwork); err != nil {
		return "", "", err
	}
	a.want()
	if s := a.service(); s.IsValid() && !pod.Spec.HostNetwork {
		return s.Addr().String(), strconv.Itoa(int(s.Port())), nil
	}
	return host, port, nil
}

func (a *Access) service() netip.AddrPort {
	if a.cfg.Service == nil {
		return netip.AddrPort{}
	}
	return a.cfg.Service()
}

// direct returns the API address for pods without a Service.
func (a *Access) direct(hostNetwork bool) (host, port string, err error) {
	if a.cfg.Address == "" {
		return "", "", errOff
	}
	if host, port, err = net.SplitHostPort(a.cfg.Address); err != nil {
		return "", "", err
	}
	ip, _ := netip.ParseAddr(host)
	every, loop := host == "" || ip.IsUnspecified(), host == "localhost" || ip.IsLoopback()
	switch {
	case !every && !loop:
		return host, port, nil
	case hostNetwork && every:
		return "127.0.0.1", port, nil
	case hostNetwork:
		return host, port, nil
	}
	gateways := a.gateways()
	if len(gateways) == 0 {
		return "", "", fmt.Errorf("the Kubernetes API listens on %s, which is unreachable for pods on a CNI network that monopod does not manage; "+
			"set apiServer.address to an address of this machine that pods can reach", a.cfg.Address)
	}
	return gateways[0].String(), port, nil
}

// gateways returns the addresses of this machine on the pod network.
func (a *Access) gateways() (all []netip.Addr) {
	if a.cfg.Gateways == nil {
		return nil
	}
	prefixes, err := a.cfg.Gateways()
	if err != nil {
		a.cfg.Log.Debug("the network of pods is not known", "err", err)
		return nil
	}
	for _, p := range prefixes {
		all = append(all, p.Addr())
	}
	return all
}

// Names returns additional server addresses for the certificate.
func (a *Access) Names() []netip.Addr {
	if a.cfg.Address == "" {
		return nil
	}
	all := a.gateways()
	if s := a.service(); s.IsValid() {
		all = append(all, s.Addr())
	}
	return all
}

// Addresses returns the address of the API's Service and its backend, as IP:PORT; empty if there is none.
func (a *Access) Addresses() (service, behind string) {
	host, port, err := a.direct(false)
	if err != nil {
		behind = strings.TrimPrefix(authority.ServerURL(a.cfg.Address), "https://")
		return behind, behind
	}
	behind = net.JoinHostPort(host, port)
	if s := a.service(); s.IsValid() {
		return s.String(), behind
	}
	return behind, behind
}

// Run calls serve for each address of this machine on the pod network that the API listener does not cover, as soon as a pod needs the API.
// It returns when ctx and all calls have ended.
func (a *Access) Run(ctx context.Context, serve func(ctx context.Context, address string) error) error {
	host, port, err := net.SplitHostPort(a.cfg.Address)
	ip, _ := netip.ParseAddr(host)
	if err != nil || host != "localhost" && !ip.IsLoopback() {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-a.wanted:
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, gateway := range a.gateways() {
		g.Go(func() error { return serve(ctx, net.JoinHostPort(gateway.String(), port)) })
	}
	return g.Wait()
}

// RootCA implements spec.API.
func (a *Access) RootCA() string { return a.cfg.RootCA() }

// Variables implements spec.API.
func (a *Access) Variables(pod *corev1.Pod) map[string]string {
	if manifests.APIAccess(pod.Annotations) == "" || manifests.ShortestToken(&pod.Spec) == 0 {
		return nil
	}
	host, port, err := a.reach(pod)
	if err != nil {
		return nil // the error of its volume reports it
	}
	proxy := "tcp://" + net.JoinHostPort(host, port)
	name := "KUBERNETES_PORT_" + port + "_TCP"
	return map[string]string{
		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "KUBERNETES_SERVICE_PORT_HTTPS": port, "KUBERNETES_PORT": proxy,
		name: proxy, name + "_PROTO": "tcp", name + "_PORT": port, name + "_ADDR": host,
	}
}

// maxIssued bounds the cached tokens: with more pods, tokens are reissued more often.
const maxIssued = 10_000

// Token implements spec.API. The same token is returned for two fifths of its lifetime: a caller that asks at least that often never has
// one older than four fifths.
func (a *Access) Token(pod *corev1.Pod, t *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	if manifests.APIAccess(pod.Annotations) == "" {
		return nil, fmt.Errorf("the pod gets no token without the annotation %s", manifests.AnnotationAPIAccess)
	}
	if _, _, err := a.reach(pod); err != nil {
		return nil, err
	}
	if pod.UID == "" {
		return nil, nil
	}
	r := request{uid: string(pod.UID), account: accountOf(pod), audience: t.Audience, seconds: 3600}
	if r.audience == "" {
		r.audience = access.Audience
	}
	if t.ExpirationSeconds != nil {
		r.seconds = *t.ExpirationSeconds
	}
	now := a.cfg.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, ok := a.issued[r]; ok && now.Sub(last.at) < last.life/5*2 && !now.Before(last.at) {
		return []byte(last.token), nil
	}
	subject := tokens.Subject{Namespace: pod.Namespace, ServiceAccount: tokens.Object{Name: r.account}, Pod: &tokens.Object{Name: pod.Name, UID: r.uid}}
	if account := a.cfg.Account(pod.Namespace, r.account); account != nil {
		subject.ServiceAccount.UID = string(account.UID)
	}
	life := time.Duration(min(max(r.seconds, int64(tokens.Shortest/time.Second)), int64(tokens.Longest/time.Second))) * time.Second
	token, _, err := a.cfg.Issuer.Sign(subject, []string{r.audience}, life)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(a.issued, func(_ request, i issuedToken) bool { return now.Sub(i.at) > i.life })
	if len(a.issued) >= maxIssued {
		clear(a.issued)
	}
	a.issued[r] = issuedToken{token, now, life}
	return []byte(token), nil
}

func accountOf(pod *corev1.Pod) string {
	if pod.Spec.ServiceAccountName == "" {
		return defaultAccount
	}
	return pod.Spec.ServiceAccountName
}

// defaultAccount exists in every namespace.
const defaultAccount = "default"

// AuthenticateToken implements access.Tokens, for tokens with the audience of this API.
func (a *Access) AuthenticateToken(ctx context.Context, token string) (u access.User, ok bool, err error) {
	u, _, ok, err = a.AuthenticateFor(ctx, token, []string{access.Audience})
	return u, ok, err
}

// errPods is the error while it is unknown whether the pod of a token exists.
var errPods = errors.New("pods have not been observed yet; retry")

// AuthenticateFor implements access.AudienceTokens. A token becomes invalid when its pod or its service account is removed.
func (a *Access) AuthenticateFor(_ context.Context, token string, audiences []string) (u access.User, common []string, ok bool, err error) {
	t, err := a.cfg.Issuer.Verify(token)
	if errors.Is(err, tokens.ErrUnknown) {
		return u, nil, false, nil
	}
	if err != nil {
		return u, nil, false, err
	}
	if common = t.Common(audiences); len(common) == 0 {
		return u, nil, false, errors.New("the token is for other audiences")
	}
	s := t.Subject
	if err := a.checkAccount(&s); err != nil {
		return u, nil, false, err
	}
	role := ""
	if s.Pod != nil {
		if role, err = a.podAccess(&s); err != nil {
			return u, nil, false, err
		}
	}
	u = access.Account(s.Namespace, s.ServiceAccount.Name, role)
	u.UID = s.ServiceAccount.UID
	u.Extra = map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=" + t.ID}}
	if s.Pod != nil {
		u.Extra["authentication.kubernetes.io/pod-name"] = []string{s.Pod.Name}
		u.Extra["authentication.kubernetes.io/pod-uid"] = []string{s.Pod.UID}
	}
	return u, common, true, nil
}

// checkAccount returns an error if the service account of a token is gone. Pods may name accounts that were never created.
func (a *Access) checkAccount(s *tokens.Subject) error {
	uid := s.ServiceAccount.UID
	switch account := a.cfg.Account(s.Namespace, s.ServiceAccount.Name); {
	case account != nil && uid != "" && string(account.UID) != uid && s.ServiceAccount.Name != defaultAccount,
		account == nil && uid != "" && s.ServiceAccount.Name != defaultAccount:
		return fmt.Errorf("service account %s/%s of the token no longer exists", s.Namespace, s.ServiceAccount.Name)
	}
	return nil
}

// podAccess returns the role of the pod of a token.
func (a *Access) podAccess(s *tokens.Subject) (string, error) {
	pods, complete := a.cfg.Pods()
	for i := range pods {
		p := pods[i].Pod
		if p == nil || string(p.UID) != s.Pod.UID || p.Namespace != s.Namespace || p.Name != s.Pod.Name {
			continue
		}
		if pods[i].Origin.Source == config.SourceAPIServer { // its annotations come from a different API
			return "", nil
		}
		return manifests.APIAccess(p.Annotations), nil
	}
	if !complete {
		return "", errPods
	}
	return "", fmt.Errorf("pod %s/%s of the token no longer exists", s.Namespace, s.Pod.Name)
}
