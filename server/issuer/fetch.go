package issuer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/server/trust"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

const (
	timeout     = 5 * time.Second // of a fetch, with all its requests
	maxDocument = 64 << 10
)

// fetch returns the keys that a trust's issuer publishes, as the cluster keeps them.
func (k *Keeper) fetch(ctx context.Context, t *meta.Trust) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	bearer, authorities, err := k.credentials(t)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil || len(t.CA) > 0 {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM(authorities)
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: k.cfg.Dial, DisableKeepAlives: true,
		MaxResponseHeaderBytes: maxDocument, TLSClientConfig: &tls.Config{RootCAs: roots}}
	client := &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if first := via[0].URL; r.URL.Host != first.Host || r.URL.Scheme != first.Scheme {
			return errors.New("it redirects to another host")
		} else if len(via) > 3 {
			return errors.New("it redirects more than three times")
		}
		return nil
	}}
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	text, err := get(ctx, client, strings.TrimSuffix(t.Issuer, "/")+"/.well-known/openid-configuration", bearer)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return nil, errors.New("the issuer's openid-configuration is not JSON as OpenID Connect has it")
	}
	if about.Issuer != t.Issuer {
		return nil, fmt.Errorf("the issuer's openid-configuration is that of %.200q", about.Issuer)
	}
	if at, err := url.Parse(about.Keys); err != nil || at.Scheme != "https" || len(about.Keys) > meta.MaxTrustText {
		return nil, fmt.Errorf("the issuer's jwks_uri %.200q is not an https address of up to 1024 bytes", about.Keys)
	}
	if text, err = get(ctx, client, about.Keys, bearer); err != nil {
		return nil, err
	}
	kept, _, err := trust.ReadKeys(text)
	if err != nil {
		return nil, fmt.Errorf("the issuer's keys cannot be taken: %w", err)
	}
	return kept, nil
}

// credentials returns the token for an issuer that asks for one, and its authorities. In a pod the
// token of its service account, and its cluster's authorities, are for the cluster's own issuer.
func (k *Keeper) credentials(t *meta.Trust) (bearer string, authorities []byte, err error) {
	path, authorities := t.BearerFile, t.CA
	if path == "" {
		path = filepath.Join(k.cfg.Pod, "token")
	}
	token, err := file.Read(path, maxDocument)
	bearer = strings.TrimSpace(string(token))
	switch {
	case t.BearerFile != "" && err != nil:
		return "", nil, fmt.Errorf("the token for the issuer cannot be read: %w", err)
	case t.BearerFile != "":
	case err != nil || trust.IssuerOf([]byte(bearer)) != t.Issuer:
		bearer = ""
	case len(authorities) == 0:
		authorities, _ = file.Read(filepath.Join(k.cfg.Pod, "ca.crt"), maxDocument) // else the system's have to do
	}
	return bearer, authorities, nil
}

func get(ctx context.Context, client *http.Client, address, bearer string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %.80q", address, answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("%s has more than 64 KiB", address)
	}
	return text, err
}
