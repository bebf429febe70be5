use LWP::UserAgent;

print LWP::UserAgent->new->post($ARGV[0], Content => $ARGV[1])->decoded_content;
