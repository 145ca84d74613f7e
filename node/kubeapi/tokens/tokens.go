// Package tokens signs and verifies service account tokens: JSON Web Tokens with their own signing key.
//
// It must not decide which clients get a token, what it allows, or whether the object it is bound to still exists.
//
// Goroutines: none.
package tokens

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"monopod/internal/atomicfile"
	"monopod/internal/boottime"
)

// Lifetimes of tokens.
const (
	Shortest = 10 * time.Minute
	Longest  = 24 * time.Hour
)

// issuer is the iss claim of the tokens.
const issuer = "https://kubernetes.default.svc"

// ErrUnknown is the error for a token that was not signed with this key.
var ErrUnknown = errors.New("unknown token")

// ErrExpired is the error for an expired token.
var ErrExpired = errors.New("the token has expired")

// Object identifies an object in the claims of a token.
type Object struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// Subject is the subject of a token.
type Subject struct {
	Namespace      string `json:"namespace"`
	ServiceAccount Object `json:"serviceaccount"`
	// Pod is the pod to which the token is bound; nil if none.
	Pod *Object `json:"pod,omitempty"`
}

// moment is when a token was signed, by a monotonic clock that cannot be set.
type moment struct {
	Boot string `json:"boot"`
	// Awake is in seconds since the boot.
	Awake int64 `json:"awake"`
}

// claims are the claims of a token.
type claims struct {
	Audiences []string `json:"aud"`
	Expires   int64    `json:"exp"`
	Issued    int64    `json:"iat"`
	Issuer    string   `json:"iss"`
	ID        string   `json:"jti"`
	Subject   Subject  `json:"kubernetes.io"`
	Moment    moment   `json:"monopod.dev"`
	NotBefore int64    `json:"nbf"`
	User      string   `json:"sub"`
}

// Token is a token that has been verified.
type Token struct {
	Subject   Subject
	Audiences []string
	// ID is the ID of the token.
	ID string
}

// Config configures an Issuer.
type Config struct {
	// Dir is the directory with the key; it is created on demand.
	Dir string
	// Now is the clock; nil means boottime.Awake.
	Now func() boottime.Moment
	Log *slog.Logger
}

// Issuer signs and verifies tokens. Its methods may be called concurrently.
type Issuer struct {
	cfg Config

	mu  sync.Mutex
	key *ecdsa.PrivateKey
	id  string
}

// New returns an Issuer. It does no I/O.
func New(cfg Config) *Issuer {
	if cfg.Now == nil {
		cfg.Now = boottime.Awake
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Issuer{cfg: cfg}
}

// keyFile returns the file with the key.
func (i *Issuer) keyFile() string { return filepath.Join(i.cfg.Dir, "tokens.pem") }

const maxFile = 16 << 10

// load returns the key with its id. A missing or damaged key is recreated: tokens are short-lived, and pods get new ones.
func (i *Issuer) load() (*ecdsa.PrivateKey, string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.key != nil {
		return i.key, i.id, nil
	}
	data, err := atomicfile.Read(i.keyFile(), maxFile)
	var key *ecdsa.PrivateKey
	if err == nil {
		if key = parse(data); key == nil {
			i.cfg.Log.Warn("service account signing key is damaged; recreated it, issued tokens are invalid now", "file", i.keyFile())
		}
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, atomicfile.ErrDamaged) {
		return nil, "", fmt.Errorf("service account signing key: %w", err)
	}
	if key == nil {
		if key, err = i.create(); err != nil {
			return nil, "", fmt.Errorf("create the service account signing key: %w", err)
		}
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(public)
	i.key, i.id = key, base64.RawURLEncoding.EncodeToString(sum[:])
	return i.key, i.id, nil
}

func parse(data []byte) *ecdsa.PrivateKey {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok || key.Curve != elliptic.P256() {
		return nil
	}
	return key
}

func (i *Issuer) create() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := atomicfile.MkdirAll(i.cfg.Dir); err != nil {
		return nil, err
	}
	return key, atomicfile.Write(i.keyFile(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
}

// header is the JWT header.
type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

const algorithm = "ES256"

// Sign returns a token, and when it expires by the wall clock. life is clamped to the bounds.
func (i *Issuer) Sign(s Subject, audiences []string, life time.Duration) (token string, expires time.Time, err error) {
	key, id, err := i.load()
	if err != nil {
		return "", time.Time{}, err
	}
	now := i.cfg.Now()
	issued := now.Wall.Unix()
	life = min(max(life, Shortest), Longest)
	c := claims{
		Audiences: audiences, Issuer: issuer, Subject: s, Issued: issued, NotBefore: issued, Expires: issued + int64(life/time.Second),
		Moment: moment{Boot: now.Boot, Awake: int64(now.Since / time.Second)}, ID: tokenID(), User: UserName(s.Namespace, s.ServiceAccount.Name),
	}
	head, err := part(header{Algorithm: algorithm, KeyID: id})
	if err != nil {
		return "", time.Time{}, err
	}
	body, err := part(c)
	if err != nil {
		return "", time.Time{}, err
	}
	sum := sha256.Sum256([]byte(head + "." + body))
	r, v, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return "", time.Time{}, err
	}
	signature := append(r.FillBytes(make([]byte, half)), v.FillBytes(make([]byte, half))...)
	return head + "." + body + "." + base64.RawURLEncoding.EncodeToString(signature), time.Unix(c.Expires, 0).UTC(), nil
}

// half is the size of each half of a signature.
const half = 32

func part(v any) (string, error) {
	b, err := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(b), err
}

func tokenID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// UserName is the name of the user of a service account.
func UserName(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// maxToken bounds the length of tokens that are parsed, ahead how far the clock may have been ahead in an earlier boot.
const (
	maxToken = 16 << 10
	ahead    = 5 * time.Minute
)

// Verify verifies a token and returns its content. The error is ErrUnknown if it was not signed with this key, ErrExpired if it has
// expired.
//
// In the boot in which it was signed, the age of a token is measured by a clock that cannot be set: setting the clock of the machine
// neither expires tokens nor extends their lifetime. In other boots the wall clock is used.
func (i *Issuer) Verify(token string) (*Token, error) {
	words := strings.Split(token, ".")
	if len(token) > maxToken || len(words) != 3 {
		return nil, ErrUnknown
	}
	var h header
	if !decode(words[0], &h) || h.Algorithm != algorithm {
		return nil, ErrUnknown
	}
	key, id, err := i.load()
	if err != nil {
		return nil, err
	}
	signature, err := base64.RawURLEncoding.DecodeString(words[2])
	if err != nil || h.KeyID != id || len(signature) != 2*half {
		return nil, ErrUnknown
	}
	sum := sha256.Sum256([]byte(words[0] + "." + words[1]))
	r, v := new(big.Int).SetBytes(signature[:half]), new(big.Int).SetBytes(signature[half:])
	var c claims
	if !ecdsa.Verify(&key.PublicKey, sum[:], r, v) || !decode(words[1], &c) || c.Issuer != issuer {
		return nil, ErrUnknown
	}
	if c.expired(i.cfg.Now()) {
		return nil, ErrExpired
	}
	return &Token{Subject: c.Subject, Audiences: c.Audiences, ID: c.ID}, nil
}

func (c *claims) expired(now boottime.Moment) bool {
	if c.Moment.Boot != "" && c.Moment.Boot == now.Boot {
		return int64(now.Since/time.Second)-c.Moment.Awake >= c.Expires-c.Issued
	}
	return !now.Wall.Before(time.Unix(c.Expires, 0)) || now.Wall.Before(time.Unix(c.Issued, 0).Add(-ahead))
}

func decode(text string, into any) bool {
	b, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && json.Unmarshal(b, into) == nil
}

// Common returns the wanted audiences for which the token is valid.
func (t *Token) Common(wanted []string) []string {
	var common []string
	for _, a := range wanted {
		if slices.Contains(t.Audiences, a) {
			common = append(common, a)
		}
	}
	return common
}
