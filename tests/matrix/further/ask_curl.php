<?php
$client = curl_init($argv[1]);
curl_setopt_array($client, [CURLOPT_POSTFIELDS => $argv[2], CURLOPT_RETURNTRANSFER => true]);
$reply = curl_exec($client);
echo $reply === false ? curl_error($client) : $reply, "\n";
