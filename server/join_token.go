package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// tokenCheck is how often the file of the join token is read again.
const tokenCheck = time.Second

// joinTokens are the tokens of a text: one, or while it is rotated two on a line each.
func joinTokens(text string) (tokens [][]byte, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if n := len(line); n < minTokenLen || n > maxTokenLen {
			return nil, fmt.Errorf("join token has %d bytes; choose %d to %d, at random", n, minTokenLen, maxTokenLen)
		}
		tokens = append(tokens, []byte(line))
	}
	if len(tokens) == 0 || len(tokens) > 2 {
		return nil, fmt.Errorf("%d join tokens are given; give one, or two lines while it is rotated", len(tokens))
	}
	return tokens, nil
}

// followJoinToken takes the join tokens that the operator writes into their file while the instance
// runs. A file that is wrong leaves the former tokens in use.
func followJoinToken(s *Server, now string) {
	path := s.cfg.JoinTokenFile
	if path == "" {
		path = filepath.Join(s.cfg.DataDir, tokenFile)
	}
	wrong := "" // as it was logged last
	for beat.Sleep(s.ctx, tokenCheck) {
		b, err := file.Read(path, maxTokenFile)
		text := strings.TrimSpace(string(b))
		if err == nil && text == now {
			wrong = ""
			continue
		}
		var tokens [][]byte
		if err == nil {
			tokens, err = joinTokens(text)
		}
		if err != nil {
			if wrong != err.Error() {
				wrong = err.Error()
				s.log.Error("join token is not read again, the former one stays", "file", path, "error", err)
			}
			continue
		}
		now, wrong = text, ""
		s.peers.SetTokens(tokens)
		if len(tokens) > 1 {
			s.log.Info("join token read again, two are accepted and the first one is shown to others", "file", path)
		} else {
			s.log.Info("join token read again, it alone is accepted", "file", path)
		}
	}
}
